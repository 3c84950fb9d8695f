"""The file that `dledger export` writes: durable, extended, or full."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dledger_client.cli import main
from dledger_client.exports.reading import ExportDecoder
from dledger_client.exports.records import ExportedEntry
from dledger_fake_server.group import Group
from dledger_formats.log import disk
from dledger_formats.log.canaries import CANARY_CHANNEL
from dledger_formats.log.memberships import MEMBERSHIP_CHANNEL
from dledger_node.store.log.log_store import LogStore

PROGRAM = [
    sys.executable, "-c", "import sys; from dledger_client.cli import main; sys.exit(main())",
]  # fmt: skip
SIZES = {"segment_size_bytes": 1 << 23, "index_segment_size_bytes": 3200}


def exported(path: Path) -> list[ExportedEntry]:
    decoder = ExportDecoder(str(path))
    entries = decoder.feed(path.read_bytes())
    decoder.finish()
    return entries


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A member's folder with every kind of entry, and a body of the largest size."""
    path = tmp_path / "dledger-n0"
    store = LogStore.open(path, **SIZES)
    store.append_bodies([b""], 1, None, disk.NOOP)
    store.append_bodies([b'{"voters":["n0"],"learners":[]}'], 1, [MEMBERSHIP_CHANNEL], disk.NOOP)
    store.append_bodies([b""], 1, [CANARY_CHANNEL], disk.NOOP)
    store.append_bodies([os.urandom(disk.BODY_SIZE_MAX)], term=1)
    store.append_bodies([b"of a producer"], 1, [7 << 16], disk.NORMAL)
    store.close()
    return path


def test_every_kind_of_entry_is_exported_as_it_is(folder: Path, tmp_path: Path) -> None:
    assert main(["export", "--folder", str(folder), str(tmp_path / "out")]) == 0

    assert [(one.kind, one.channel, len(one.body)) for one in exported(tmp_path / "out")] == [
        (disk.NOOP, 0, 0),
        (disk.NOOP, MEMBERSHIP_CHANNEL, 31),
        (disk.NOOP, CANARY_CHANNEL, 0),
        (disk.NORMAL, 0, disk.BODY_SIZE_MAX),
        (disk.NORMAL, 7 << 16, 13),
    ]


def test_an_export_that_filled_the_disk_is_continued(folder: Path, tmp_path: Path) -> None:
    """A limit of the file's size stands for the disk's."""
    whole, path = tmp_path / "whole", tmp_path / "out"
    assert main(["export", "--folder", str(folder), str(whole)]) == 0
    export = [*PROGRAM, "export", "--folder", str(folder), str(path)]
    limited = subprocess.run(
        ["bash", "-c", 'ulimit -f 1024; exec "$@"', "bash", *export],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert limited.returncode == 1
    assert limited.stderr == f"dledger: cannot write {path}: File too large\n"
    assert path.stat().st_size == 1 << 20

    assert main(["export", "--folder", str(folder), str(path)]) == 0

    assert path.read_bytes() == whole.read_bytes()


def test_a_file_that_was_exported_is_durable_and_so_is_its_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = set()

    def fsync(file: int) -> None:
        synced.add(os.fstat(file).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    path = tmp_path / "exports" / "out"
    path.parent.mkdir()

    assert main(["export", "--folder", str(folder), str(path)]) == 0

    assert synced == {path.stat().st_ino, path.parent.stat().st_ino}


def test_a_file_that_cannot_be_made_durable_is_not_to_be_extended(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A second `fsync` would succeed, although the kernel has dropped what it could not write."""

    def fsync(file: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    path = tmp_path / "out"

    assert main(["export", "--folder", str(folder), str(path)]) == 1

    assert capsys.readouterr().err == (
        f"dledger: the export may not be on the disk: Input/output error; remove {path}, and "
        "export again\n"
    )


@pytest.mark.usefixtures("group_in_environment")
def test_an_export_without_the_name_of_its_group_is_extended_from_the_group(
    group_in_thread: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dledger-n0"
    store = LogStore.open(path, **SIZES)
    store.append_bodies([b"a", b"b"], term=1)
    store.close()
    group_in_thread.log = [b"a", b"b", b"c"]
    with monkeypatch.context() as without_group:
        without_group.delenv("DLEDGER_CLIENT_GROUP")
        assert main(["export", "--folder", str(path), str(tmp_path / "out")]) == 0

    assert main(["export", str(tmp_path / "out")]) == 0

    assert [one.body for one in exported(tmp_path / "out")] == [b"a", b"b", b"c"]


def test_an_export_that_cannot_be_written_fails_as_it_does_on_a_full_disk(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nowhere" / "out"

    assert main(["export", "--folder", str(folder), str(path)]) == 1
    assert capsys.readouterr().err == f"dledger: cannot write {path}: No such file or directory\n"


@pytest.mark.parametrize("command", [["import"], ["export", "--servers", "127.0.0.1:1"]])
def test_a_file_that_is_not_an_export_is_a_wrong_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    path = tmp_path / "lines"
    path.write_text("a\nb\n")

    assert main([*command, str(path)]) == 2
    assert capsys.readouterr().err == f"dledger: {path} is not an export\n"
