"""After a crash at any moment, a snapshot exists as a whole or not at all."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dledger_node.store.snapshots.snapshots import Snapshots
from dledger_store_faults.tree_crashes import Tree, TreeRecorder, write_tree

RESERVED = 2


def data_of(index: int) -> list[bytes]:
    return [b"the state at entry %d, " % index, b"in pieces"]


@dataclass(slots=True)
class Promise:
    """Last included indexes of the snapshots that a crash now must leave, and that it may leave."""

    there: set[int] = field(default_factory=set)
    possible: set[int] = field(default_factory=set)

    def now(self, there: set[int], also: set[int]) -> None:
        self.there, self.possible = there, there | also


@dataclass(frozen=True, slots=True)
class Crash:
    """A state of the disk, and the promise at that moment."""

    tree: Tree
    there: set[int]
    possible: set[int]


def life(store: Path, others: Path, promise: Promise) -> None:
    """Save snapshots, remove surplus ones, adopt another member's, discard one."""
    snapshots, kept = Snapshots(store, reserved=RESERVED), set[int]()
    for index in (10, 20, 30):
        # The oldest may be removed as soon as the new one exists.
        promise.now(kept & {index - 10}, kept | {index})
        snapshots.save(index, 1, data_of(index))
        kept = {*kept, index} - {index - 20}
        promise.now(kept, set())
    other = Snapshots(others, reserved=1)
    other.save(40, 1, data_of(40))
    (snapshots.installing(0) / "data").write_bytes(b"".join(data_of(40)))
    promise.now(kept, {40})
    snapshots.adopt(other.newest_first[0])
    promise.now({20, 40}, {30})
    snapshots.discard(30)
    promise.now({40}, {20, 50})
    Snapshots(store, reserved=RESERVED).save(50, 1, data_of(50))


def crashes(memory_path: Path, deaf_to: str = "") -> list[Crash]:
    """Return every legal disk state of every moment."""
    promise, found = Promise(), list[Crash]()

    def note(trees: Iterator[Tree]) -> None:
        found.extend(Crash(tree, promise.there, promise.possible) for tree in trees)

    store, others = memory_path / "store", memory_path / "others"
    store.mkdir()
    others.mkdir()
    with TreeRecorder(store, note, deaf_to).recording():
        life(store, others, promise)
    return found


def is_kept(crash: Crash, top: Path) -> bool:
    """Whether the state after a crash is sound, keeps the promise, and accepts a new snapshot."""
    shutil.rmtree(top, ignore_errors=True)
    write_tree(top, crash.tree)
    found = Snapshots(top, reserved=RESERVED)
    held = {meta.last_included_index for meta in found.newest_first}
    if found.damaged or not crash.there <= held <= crash.possible:
        return False
    for meta in found.newest_first:
        read: list[bytes] = []
        found.read(meta, lambda file, read=read: read.append(file.read()))  # type: ignore[misc]
        if read != [b"".join(data_of(meta.last_included_index))]:
            return False
    found.save(60, 1, data_of(60))
    return Snapshots(top, reserved=RESERVED).newest_index == 60


def test_every_crash_leaves_whole_snapshots_and_every_promised_one(memory_path: Path) -> None:
    found = crashes(memory_path)

    assert len(found) > 150
    broken = [crash for crash in found if not is_kept(crash, memory_path / "crashed")]
    assert not broken


def test_a_crash_while_the_only_snapshot_is_replaced_leaves_it_or_a_trace(
    memory_path: Path,
) -> None:
    """It is damaged. Without a trace of it, the member would not heal after the crash."""
    store, top = memory_path / "store", memory_path / "crashed"
    store.mkdir()
    Snapshots(store, reserved=RESERVED).save(10, 1, data_of(10))
    (store / "snapshot" / "snapshot_10" / "data").write_bytes(b"rotten")
    found: list[Tree] = []
    with TreeRecorder(store, found.extend).recording():
        Snapshots(store, reserved=RESERVED).save(10, 1, data_of(10))

    assert len(found) > 20
    for tree in found:
        shutil.rmtree(top, ignore_errors=True)
        write_tree(top, tree)
        snapshots = Snapshots(top, reserved=RESERVED)
        assert snapshots.newest_index == 10 or snapshots.damaged
        snapshots.save(20, 1, data_of(20))
        assert (Snapshots(top, reserved=RESERVED).newest_index, snapshots.damaged) == (20, {})


@pytest.mark.parametrize("deaf_to", ["files", "folders"])
def test_the_judge_detects_missing_syncs(memory_path: Path, deaf_to: str) -> None:
    found = crashes(memory_path, deaf_to)

    assert not all(is_kept(crash, memory_path / "crashed") for crash in found)
