"""Errors of a local group before it starts any member."""

import dataclasses
import errno
import os
import socket
import tempfile
from pathlib import Path

import pytest

from dledger_client.cli import main
from dledger_client.local.errors import LocalGroupError
from dledger_client.local.folder import GroupShape, load_or_create_shape, lock_folder
from dledger_client.local.group import LocalGroup, member_program
from dledger_formats.settings import GROUP_IDENTITY_PATTERN
from tools.groups.ports import free_ports

THREE = GroupShape(group="local", members=3)


def test_a_folder_in_use_is_rejected_and_the_error_names_the_process(tmp_path: Path) -> None:
    with (
        lock_folder(tmp_path),
        pytest.raises(LocalGroupError, match=r"in use by process \d+"),
        lock_folder(tmp_path),
    ):
        pass


def test_a_released_folder_can_be_locked_again(tmp_path: Path) -> None:
    with lock_folder(tmp_path / "new"):
        pass
    with lock_folder(tmp_path / "new"):
        pass


def test_a_group_keeps_its_shape(tmp_path: Path) -> None:
    written = GroupShape(group="local", members=3, segment_size_bytes=1 << 20)

    first = load_or_create_shape(tmp_path, written)

    assert dataclasses.replace(first, identity="") == written
    assert load_or_create_shape(tmp_path, THREE) == first


def test_each_group_gets_an_identity_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()

    one, two = (load_or_create_shape(tmp_path / name, THREE) for name in ("one", "two"))

    assert one.identity
    assert GROUP_IDENTITY_PATTERN.fullmatch(one.identity)
    assert one.identity != two.identity


def test_a_group_of_an_earlier_release_gets_an_identity_once(tmp_path: Path) -> None:
    (tmp_path / "group.json").write_bytes(THREE.to_json())

    adopted = load_or_create_shape(tmp_path, THREE)

    assert adopted.identity
    assert GROUP_IDENTITY_PATTERN.fullmatch(adopted.identity)
    assert load_or_create_shape(tmp_path, THREE) == adopted


@pytest.mark.parametrize(
    "other", [GroupShape(group="local", members=1), GroupShape(group="orders", members=3)]
)
def test_a_folder_with_the_log_of_another_group_is_rejected(
    tmp_path: Path, other: GroupShape
) -> None:
    load_or_create_shape(tmp_path, THREE)

    with pytest.raises(LocalGroupError, match="--group local --members 3"):
        load_or_create_shape(tmp_path, other)


@pytest.mark.parametrize(("is_broker", "how"), [(True, "with"), (False, "without")])
def test_the_log_of_a_broker_is_only_for_brokers(tmp_path: Path, is_broker: bool, how: str) -> None:
    load_or_create_shape(tmp_path, dataclasses.replace(THREE, broker=is_broker))

    with pytest.raises(LocalGroupError, match=f"start it {how} --broker"):
        load_or_create_shape(tmp_path, dataclasses.replace(THREE, broker=not is_broker))


def test_a_folder_with_unrelated_files_is_rejected_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "letters").touch()

    with pytest.raises(LocalGroupError, match="contains letters"):
        load_or_create_shape(tmp_path, THREE)
    assert [path.name for path in tmp_path.iterdir()] == ["letters"]


def test_a_damaged_shape_file_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "group.json").write_text("{")

    with pytest.raises(LocalGroupError, match=r"cannot read .*group\.json"):
        load_or_create_shape(tmp_path, THREE)


def test_an_unfinished_shape_file_of_a_crash_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "group.new").write_text("{")

    assert dataclasses.replace(load_or_create_shape(tmp_path, THREE), identity="") == THREE


@pytest.mark.parametrize("name", ["dledger-node", "dledger-broker"])
def test_a_missing_program_raises_an_error_that_explains_the_installation(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(LocalGroupError, match=f"{name} was found neither .* pip install"):
        member_program(name, python=str(tmp_path / "python"), search_path=str(tmp_path))


@pytest.mark.parametrize(("members", "port"), [(2, 9000), (9, 9000), (3, 65_530), (1, 0)])
def test_invalid_numbers_of_members_and_ports_are_rejected(
    tmp_path: Path, members: int, port: int
) -> None:
    with pytest.raises(LocalGroupError):
        LocalGroup(GroupShape(group="local", members=members), tmp_path, first_port=port)


@pytest.mark.parametrize(
    ("group", "port", "words"),
    [("a.b", 9876, "a broker cannot have the name"), ("local", 65_533, "3 brokers need 4 ports")],
)
def test_a_broker_that_cannot_have_its_name_or_ports_is_rejected(
    tmp_path: Path, group: str, port: int, words: str
) -> None:
    shape = GroupShape(group=group, members=3, broker=True)

    with pytest.raises(LocalGroupError, match=words):
        LocalGroup(shape, tmp_path, broker_port=port)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--broker-port", "9876"], "add --broker"),
        (["--broker", "--state-machine", "register"], "leave out --state-machine"),
        (["--broker", "--seed", "archive"], "leave out --seed"),
    ],
)
def test_options_that_contradict_a_broker_are_rejected_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    code = main(["group", "local", "--data", str(tmp_path / "new"), *options])

    assert (code, (tmp_path / "new").exists()) == (2, False)
    assert words in capsys.readouterr().err


def test_a_port_of_a_broker_in_use_names_the_option_that_chooses_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        first = next(free_ports())
        code = main(
            ["group", "local", "--data", str(tmp_path), "--port", str(first), "--broker",
             "--broker-port", str(port)]
        )  # fmt: skip

    assert code == 2
    assert f"cannot listen on port {port}" in (err := capsys.readouterr().err)
    assert "--broker-port" in err


def test_a_port_in_use_prints_an_error_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code = main(["group", "local", "--data", str(tmp_path), "--port", str(port)])

    err = capsys.readouterr().err
    assert (code, err.count("\n")) == (2, 1)
    assert f"cannot listen on port {port}" in err


def test_the_name_of_the_file_with_the_shape_of_a_group_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []

    def fsync(file: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{file}"), (tmp_path / "group.json").exists()))

    monkeypatch.setattr(os, "fsync", fsync)

    load_or_create_shape(tmp_path, THREE)

    assert synced == [(str(tmp_path / "group.new"), False), (str(tmp_path), True)]


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("call", ["ftruncate", "pwrite", "fsync"])
def test_a_folder_on_a_full_disk_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    call: str,
) -> None:
    monkeypatch.setattr(os, call, full)

    assert main(["group", "local", f"--data={tmp_path}"]) == 2
    assert capsys.readouterr().err == (
        f"dledger: cannot use folder {tmp_path}: No space left on device\n"
    )


def test_a_temporary_folder_that_cannot_be_made_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "mkdtemp", full)

    assert main(["group", "local"]) == 2
    assert capsys.readouterr().err == (
        "dledger: cannot make a temporary folder: No space left on device; name a folder with "
        "--data\n"
    )


def test_a_file_is_no_folder_for_a_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    assert main(["group", "local", "--data", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == (
        f"dledger: cannot use {tmp_path}/file as a folder: it is a file\n"
    )


def test_what_is_no_archive_is_told_without_the_words_of_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["group", "local", "--data", str(tmp_path / "d"), "--seed", str(tmp_path)]) == 2
    assert "is no archive: archive.json: No such file or directory; name" in capsys.readouterr().err
