"""Exports of members' folders, Java's included."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger_client.cli import main
from dledger_client.exports.folder import kept_from_members
from dledger_client.exports.reading import ExportDecoder
from dledger_client.exports.records import ExportedEntry
from dledger_formats.log import disk
from dledger_node.errors import StoreInUseError
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.checkpoint import Checkpoint, save_checkpoint
from dledger_store_files.archives import extract

GOLDEN = Path(__file__).parent.parent / "formats" / "golden"
ARCHIVES: list[dict[str, Any]] = json.loads((GOLDEN / "manifest.json").read_text())
MEMBERS = [
    pytest.param(archive, member, id=f"{archive['archive']}-{member}")
    for archive in ARCHIVES
    for member in archive["nodes"]
]
SIZES = {"segment_size_bytes": 8192, "index_segment_size_bytes": 3200}


def golden_body(index: int, length: int) -> bytes:
    return bytes((index * 31 + j * 7) & 255 for j in range(length))


def unpacked(archive: dict[str, Any], member: str, tmp_path: Path) -> Path:
    extract(GOLDEN / archive["archive"], tmp_path)
    return tmp_path / archive["archive"].removesuffix(".tar.xz") / f"dledger-{member}"


def exported(path: Path) -> list[ExportedEntry]:
    decoder = ExportDecoder(str(path))
    entries = decoder.feed(path.read_bytes())
    decoder.finish()
    return entries


@pytest.mark.parametrize(("archive", "member"), MEMBERS)
def test_a_java_folder_is_exported_whole(
    archive: dict[str, Any], member: str, tmp_path: Path
) -> None:
    folder = unpacked(archive, member, tmp_path)

    assert main(["export", "--folder", str(folder), "--group=g0", str(tmp_path / "out")]) == 0

    assert exported(tmp_path / "out") == [
        ExportedEntry(magic, index, term, 0, golden_body(index, length))
        for index, _, term, length, magic in archive["entries"]
    ]


def log_end(archive: dict[str, Any], count: int | None = None) -> tuple[int, int]:
    """Return the index and the position of the entry after the first `count` ones, or the last."""
    entries = archive["entries"][:count]
    index, pos, _, length, _ = entries[-1]
    return index + 1, pos + disk.ENTRY_HEADER_SIZE + length


def raw_entry(index: int, term: int, pos: int) -> bytes:
    header = disk.EntryHeader(disk.NORMAL, disk.ENTRY_HEADER_SIZE + 5, index, term, pos, 0, 0, 0, 5)
    return disk.ENTRY_HEADER.pack(*header) + b"stale"


def write_at(folder: Path, pos: int, raw: bytes) -> None:
    path = max(one for one in (folder / "data").iterdir() if int(one.name) <= pos)
    with path.open("r+b") as file:
        file.seek(pos - int(path.name))
        file.write(raw)


LEFTOVERS = {
    "entry": lambda index, pos: raw_entry(index, 1, pos),
    "part of a header": lambda index, pos: raw_entry(index, 2, pos)[:20],
    "rest of an entry, and another": lambda index, pos: b"x" * 70 + raw_entry(index, 1, pos + 70),
}


@pytest.mark.parametrize("left", LEFTOVERS.values(), ids=list(LEFTOVERS))
@pytest.mark.parametrize("archive", ARCHIVES, ids=[one["archive"] for one in ARCHIVES])
def test_what_java_leaves_after_the_end_of_a_log_is_not_exported(
    archive: dict[str, Any], left: Callable[[int, int], bytes], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """After a truncation or a crash. Java 0.4 keeps no checkpoint that tells where its log ends."""
    folder = unpacked(archive, "n0", tmp_path)
    index, pos = log_end(archive)
    write_at(folder, pos, left(index, pos))

    assert main(["export", "--folder", str(folder), str(tmp_path / "out")]) == 0

    assert exported(tmp_path / "out")[-1].index == index - 1
    assert f"the log ends with entry {index - 1}; the bytes after it" in capsys.readouterr().err


@pytest.mark.parametrize("size", [disk.ENTRY_HEADER_SIZE, 8])
@pytest.mark.parametrize("archive", ARCHIVES, ids=[one["archive"] for one in ARCHIVES])
def test_a_hole_in_a_java_log_is_no_end_of_it(
    archive: dict[str, Any], size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = unpacked(archive, "n0", tmp_path)
    index, pos = log_end(archive, len(archive["entries"]) - 3)
    write_at(folder, pos, bytes(size))

    assert main(["export", "--folder", str(folder), str(tmp_path / "out")]) == 1

    assert f"entry {index} cannot be read" in capsys.readouterr().err
    before = ["export", "--folder", str(folder), f"--last={index - 1}", str(tmp_path / "out")]
    assert main(before) == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of this project's with several segments, two terms and 400 entries."""
    path = tmp_path / "dledger-n0"
    store = LogStore.open(path, **SIZES)
    store.append_bodies([b""], 1, None, disk.NOOP)
    store.append_bodies([b"%d" % n * (n % 90) for n in range(1, 300)], term=1)
    store.append_bodies([b"second term"] * 100, term=2)
    store.close()
    return path


def test_a_folder_of_this_project_is_exported_with_all_segments(
    folder: Path, tmp_path: Path
) -> None:
    assert main(["export", "--folder", str(folder), str(tmp_path / "out")]) == 0

    found = exported(tmp_path / "out")
    assert [entry.index for entry in found] == list(range(400))
    assert found[0] == ExportedEntry(disk.NOOP, 0, 1, 0, b"")
    assert found[9].body == b"9" * 9
    assert found[399] == ExportedEntry(disk.NORMAL, 399, 2, 0, b"second term")


def test_an_export_in_two_parts_equals_one_in_one_part(folder: Path, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["export", "--folder", str(folder), str(whole)]) == 0

    assert main(["export", "--folder", str(folder), "--last", "123", str(parts)]) == 0
    assert exported(parts)[-1].index == 123
    assert main(["export", "--folder", str(folder), str(parts)]) == 0

    assert parts.read_bytes() == whole.read_bytes()


def test_an_export_that_was_killed_is_continued(folder: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert main(["export", "--folder", str(folder), str(whole)]) == 0
    cut.write_bytes(whole.read_bytes()[:-1234])

    assert main(["export", "--folder", str(folder), str(cut)]) == 0

    assert cut.read_bytes() == whole.read_bytes()


def test_another_log_does_not_continue_an_export(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "dledger-n1"
    store = LogStore.open(other, **SIZES)
    store.append_bodies([b"other %d" % n for n in range(500)], term=1)
    store.close()
    out = tmp_path / "out"
    assert main(["export", "--folder", str(folder), str(out)]) == 0
    before = out.read_bytes()

    assert main(["export", "--folder", str(other), str(out)]) == 1

    assert "entry 399 of term 2, which was exported, is not in the log" in capsys.readouterr().err
    assert out.read_bytes() == before


def test_a_damaged_entry_ends_the_export_with_its_name(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = folder / "data" / disk.file_name(0)
    raw = bytearray(first.read_bytes())
    raw[raw.index(b"6" * 14)] ^= 1
    first.write_bytes(raw)

    assert main(["export", "--folder", str(folder), str(tmp_path / "out")]) == 1

    assert "entry 66 cannot be read: bad_body_crc" in capsys.readouterr().err
    assert main(["export", "--folder", str(folder), "--last=65", str(tmp_path / "out")]) == 0
    assert exported(tmp_path / "out")[-1].index == 65


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--from", "400"], 4, "there is no entry 400: {folder} ends with entry 399"),
        (["--from", "9000", "--last", "9001"], 4, "there is no entry 9000"),
        (["--last", "400"], 4, "there is no entry 400: {folder} ends with entry 399"),
    ],
)
def test_entries_after_the_end_are_refused_as_by_a_group(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    arguments: list[str], code: int, message: str,
) -> None:  # fmt: skip
    assert main(["export", "--folder", str(folder), *arguments, str(tmp_path / "out")]) == code

    assert message.format(folder=folder) in capsys.readouterr().err


def test_a_folder_does_not_get_the_name_of_the_default_group(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "dledger" / "config.toml"
    config.parent.mkdir()
    config.write_text('default = "p"\n[profiles.p]\nservers = "127.0.0.1:1"\ngroup = "orders"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    assert main(["export", "--folder", str(folder), str(tmp_path / "out")]) == 0
    more = ["export", "--folder", str(folder), "--group", "flights", str(tmp_path / "named")]
    assert main(more) == 0

    assert b"orders" not in (tmp_path / "out").read_bytes()[:200]
    assert b"flights" in (tmp_path / "named").read_bytes()[:200]


def test_a_last_entry_before_the_end_of_the_file_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["export", "--folder", str(folder), str(tmp_path / "out")]
    assert main([*command, "--last", "20"]) == 0
    assert main([*command, "--last", "20"]) == 0

    assert main([*command, "--last", "19"]) == 2

    printed = capsys.readouterr().err
    assert "holds the entries 0 to 20 already, and --last 19 is before its end" in printed
    assert "remove" not in printed


def test_an_export_that_begins_within_a_log_is_repeated_as_it_was(
    folder: Path, tmp_path: Path
) -> None:
    command = ["export", "--folder", str(folder), "--from", "50", str(tmp_path / "out")]
    assert main([*command, "--last", "80"]) == 0

    assert main(command) == 0

    assert [entry.index for entry in exported(tmp_path / "out")] == list(range(50, 400))


def test_a_missing_segment_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "data" / disk.file_name(8192)).unlink()

    assert main(["export", "--folder", str(folder), str(tmp_path / "out")]) == 1
    assert "the files from 8192 to 16384 are missing" in capsys.readouterr().err


@pytest.mark.parametrize("holder", [None, 4711])
def test_a_folder_in_use_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, holder: int | None,
) -> None:  # fmt: skip
    """Also from another PID namespace, where /proc/locks does not show the lock."""
    monkeypatch.setattr("dledger_client.exports.folder.holder_of", lambda _: holder)
    store = LogStore.open(folder, **SIZES)

    assert main(["export", "--folder", str(folder), str(tmp_path / "out")]) == 1

    store.close()
    by = f", process {holder}" if holder else ""
    printed = capsys.readouterr().err
    assert printed.startswith(f"dledger: {folder} is in use by a running member{by}; export from")


def test_a_member_cannot_start_while_its_folder_is_exported(folder: Path) -> None:
    (folder / "lock").write_text("process 1\n")  # an earlier one
    in_use = pytest.raises(StoreInUseError, match=f"in use by process {os.getpid()};")
    with kept_from_members(folder), kept_from_members(folder), in_use:
        LogStore.open(folder, **SIZES)

    LogStore.open(folder, **SIZES).close()


def test_a_folder_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "--folder", str(tmp_path), str(tmp_path / "out")]) == 2
    assert "is not a member's folder" in capsys.readouterr().err


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_folder_that_has_lost_its_last_files_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: int
) -> None:
    for path in sorted((folder / "data").iterdir())[kept:]:
        path.unlink()

    assert main(["export", "--folder", str(folder), str(tmp_path / "out")]) == 1

    printed = capsys.readouterr().err
    assert "is missing: the files in data/" in printed
    assert "durable up to entry 399" in printed


def test_a_segment_that_is_a_named_pipe_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = folder / "data" / "00000000000000008192"
    segment.unlink()
    os.mkfifo(segment)

    assert main(["export", "--folder", str(folder), str(tmp_path / "out")]) == 1

    assert capsys.readouterr().err == (
        f"dledger: {segment} is no regular file, as a segment of the log must be\n"
    )


def segments_of(folder: Path) -> list[Path]:
    return sorted((folder / "data").iterdir())


def begin_at(folder: Path, segment: Path) -> int:
    """Save a beginning as a removal does before it removes the files; return the index."""
    begin = disk.unpack_header(segment.read_bytes(), 0).index
    save_checkpoint(folder, Checkpoint(end_index=399, committed_index=399, begin_index=begin))
    return begin


@pytest.mark.parametrize("lost", [1, 2])
def test_a_folder_that_has_lost_its_first_files_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: int
) -> None:
    for path in segments_of(folder)[:lost]:
        path.unlink()
    begin = disk.unpack_header(segments_of(folder)[0].read_bytes(), 0).index

    assert main(["export", "--folder", str(folder), str(tmp_path / "out")]) == 1

    assert (
        f"the files in data/ begin with entry {begin}, but the checkpoint says that the log began "
        "with entry 0" in capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()
    rest = ["export", "--folder", str(folder), "--from", str(begin), str(tmp_path / "out")]
    assert main(rest) == 0
    assert exported(tmp_path / "out")[0].index == begin


def test_a_folder_whose_front_was_removed_on_purpose_is_exported(
    folder: Path, tmp_path: Path
) -> None:
    begin = begin_at(folder, segments_of(folder)[2])
    for path in segments_of(folder)[:2]:
        path.unlink()

    assert main(["export", "--folder", str(folder), str(tmp_path / "out")]) == 0

    assert [entry.index for entry in exported(tmp_path / "out")] == list(range(begin, 400))


@pytest.mark.parametrize("deleted", [0, 1])
def test_files_that_an_interrupted_removal_has_left_are_not_exported(
    folder: Path, tmp_path: Path, deleted: int
) -> None:
    begin = begin_at(folder, segments_of(folder)[2])
    segments_of(folder)[1].write_bytes(b"\xa5" * 8192)
    for path in segments_of(folder)[:deleted]:
        path.unlink()

    assert main(["export", "--folder", str(folder), str(tmp_path / "out")]) == 0

    assert [entry.index for entry in exported(tmp_path / "out")] == list(range(begin, 400))
