"""Errors of a local group before it starts any member."""

import dataclasses
import socket
from pathlib import Path

import pytest

from dledger_client.cli import main
from dledger_client.local.errors import LocalGroupError
from dledger_client.local.folder import GroupShape, load_or_create_shape, lock_folder
from dledger_client.local.group import LocalGroup, node_program
from dledger_formats.settings import GROUP_IDENTITY_PATTERN

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


def test_a_missing_node_program_raises_an_error_that_explains_the_installation(
    tmp_path: Path,
) -> None:
    with pytest.raises(LocalGroupError, match="pip install"):
        node_program(python=str(tmp_path / "python"), search_path=str(tmp_path))


@pytest.mark.parametrize(("members", "port"), [(2, 9000), (9, 9000), (3, 65_530), (1, 0)])
def test_invalid_numbers_of_members_and_ports_are_rejected(
    tmp_path: Path, members: int, port: int
) -> None:
    with pytest.raises(LocalGroupError):
        LocalGroup(GroupShape(group="local", members=members), tmp_path, first_port=port)


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
