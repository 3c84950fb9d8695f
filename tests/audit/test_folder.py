"""The manifest of a member's folder."""

from pathlib import Path

import pytest

from dledger_compaction.model import key_history, naive
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.log import disk, properties
from dledger_logs import damage
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import Log
from dledger_logs.write import write_log
from dledger_scan.log_rows import rows_of
from pyspark_dledger import group
from pyspark_dledger.folder import manifest_of
from pyspark_dledger.intact import NoIntactCopyError


@pytest.fixture
def log(tmp_path: Path) -> Log:
    written = write_log(tmp_path / "dledger-n0", history(200), small_shape())
    said = {"committedIndex": written.last_index, "endIndex": written.last_index}
    (written.root / "checkpoint").write_bytes(properties.encode(said))
    return written


def test_a_folder_with_nothing_but_segments_has_no_foreign_files(log: Log) -> None:
    found = manifest_of(log.root)

    assert found.foreign == []
    assert [each.name for each in found.data] == sorted({place.segment for place in log.places})


def test_what_is_no_segment_is_named_and_not_listed(log: Log) -> None:
    before = manifest_of(log.root)
    odd = ["data/notes.txt", f"data/{disk.file_name(1)}", "index/7"]
    for name in odd:
        (log.root / name).write_bytes(b"x")

    found = manifest_of(log.root)

    assert found.foreign == sorted(odd)
    assert (found.data, found.index) == (before.data, before.index)


def test_a_segment_that_was_cut_short_is_listed(log: Log) -> None:
    first = log.root / disk.DATA_FOLDER / log.places[0].segment
    with first.open("r+b") as file:
        file.truncate(100)

    found = manifest_of(log.root)

    assert found.foreign == []
    assert found.data[0].size_bytes == 100


@pytest.mark.parametrize("cut", [0, 1])
def test_one_of_two_segments_that_was_cut_short_leaves_the_other_listed(
    cut: int, tmp_path: Path
) -> None:
    log = write_log(tmp_path / "dledger-n0", history(60), small_shape())
    assert len(log.segments) == 2
    (log.root / "checkpoint").write_bytes(properties.encode({"committedIndex": 59, "endIndex": 59}))
    with (log.root / disk.DATA_FOLDER / log.segments[cut]).open("r+b") as file:
        file.truncate(100)

    found = manifest_of(log.root)

    assert found.foreign == []
    assert [each.name for each in found.data] == log.segments


def test_a_folder_without_entries_is_read_as_an_empty_log(log: Log, tmp_path: Path) -> None:
    """It tells that it holds nothing, unlike a member that is out of service."""
    empty = tmp_path / "dledger-n1"
    empty.mkdir()
    (empty / "checkpoint").write_bytes(properties.encode({"committedIndex": -1, "endIndex": -1}))

    alone = group.ask({"n1": str(empty)})
    both = group.ask({"n0": str(log.root), "n1": str(empty)})

    assert (alone.committed_index, alone.unreported) == (-1, [])
    assert (both.committed_index, both.unreported) == (log.last_index, [])


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_the_data_source_reads_the_log_of_an_archive(prefix: str, tmp_path: Path) -> None:
    entries = key_history(300, 3)
    archive = compacted(
        copies_of({"n0": write_log(tmp_path / "n0", entries, small_shape())}), tmp_path / "a"
    )
    assert archive is not None

    rows = rows_of(f"archive={prefix}{archive.log}")

    assert [row["index"] for row in rows] == list(range(len(entries)))
    assert [row["body"] for row in rows] == [
        entry.body for entry in naive(entries, archive.info.clean_index, 20)
    ]


def test_a_query_does_not_leave_out_a_front_whose_first_entry_is_damaged(log: Log) -> None:
    damage.flip_header(log, 0, "magic", 3)

    with pytest.raises(NoIntactCopyError, match="no copy has the entries 0 to"):
        rows_of(f"n0={log.root}")
