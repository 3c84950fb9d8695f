"""Archives of logs whose front was removed before the first run: nodes take them as they are."""

from pathlib import Path

from dledger_audit.compaction.archive import Archive
from dledger_audit.compaction.proof.verify import Sources
from dledger_audit.compaction.proof.verify import verify as prove
from dledger_compaction.model import key_history, naive
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.seeding import copy_log
from dledger_logs import damage
from dledger_logs.histories import small_shape
from dledger_logs.layout import Log
from dledger_logs.read import read_log
from dledger_logs.write import write_log
from dledger_node.store.log.log_store import LogStore
from dledger_node.store_command.report import Verdict
from dledger_node.store_command.verify import verify

SHAPE = small_shape()
HISTORY = key_history(400, 4)


def late_log(folder: Path, count: int = 250) -> Log:
    """Write a member's log whose first segments were removed."""
    return damage.remove_front(write_log(folder, HISTORY[:count], SHAPE), 3)


def archive_of(log: Log, path: Path) -> Archive:
    archive = compacted(copies_of({"n0": log}), path)
    assert archive is not None
    assert archive.info.first_index == log.first_index > 0
    return archive


def test_such_an_archive_is_sound_for_a_node(tmp_path: Path) -> None:
    info = (archive := archive_of(late_log(tmp_path / "n0"), tmp_path / "a")).info

    report = verify(archive.log)

    assert (report.verdict, report.begin_index) == (Verdict.SOUND, info.first_index)


def test_a_node_opens_such_an_archive_with_the_kept_entries(tmp_path: Path) -> None:
    info = (archive := archive_of(late_log(tmp_path / "n0"), tmp_path / "a")).info
    copy_log(archive.path, info, tmp_path / "dledger-n0", info.small_files())

    store = LogStore.open(
        tmp_path / "dledger-n0", segment_size_bytes=info.segment_bytes,
        index_segment_size_bytes=info.index_segment_bytes, verify_all=True,
    )  # fmt: skip
    bodies = [store.entry(index)[1] for index in range(store.begin_index, store.end_index + 1)]
    store.close()

    first = info.first_index
    kept = naive(HISTORY[first:250], info.clean_index, info.tombstone_entries, first)
    assert bodies == [entry.body for entry in kept]


def test_such_an_archive_is_proven_and_continued(tmp_path: Path) -> None:
    archive = archive_of(late_log(tmp_path / "n0"), tmp_path / "a")
    later = copies_of({"n0": late_log(tmp_path / "later", count=400)})
    assert prove(archive, Sources(members=later)).first == []

    again = compacted(later, tmp_path / "a")

    assert again is not None
    assert prove(again, Sources(members=later)).first == []
    assert read_log(again.log).first_index == archive.info.first_index
