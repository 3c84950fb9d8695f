"""The memberships of a log that is replaced by a leader's log, with crashes at every step."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.store.derived import memberships_file
from dledger_node.store.log.block import Block
from dledger_node.store.log.front import LogFront
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.segments.segment_list import SegmentList
from dledger_node.store.small_files import checkpoint
from dledger_store_files.memberships import ENTRIES, VOTES, fill
from dledger_store_files.upkeep import commit, remove_front

OpenStore = Callable[..., LogStore]


def first_block_of(leader: LogStore, follower: LogStore, last: int) -> Block:
    first = leader.begin_index
    data = b"".join(leader.read_range(first, last, 1 << 20)[0])
    return follower.front.check(data, first_index=first, last_index=last, term=1)


class Copier:
    """Copies a store's folder at every step of a replacement, as a crash would leave it."""

    def __init__(self, store: LogStore, at: Path, patched: pytest.MonkeyPatch) -> None:
        self.copies: list[Path] = []
        self._store, self._at = store, at
        for owner, name in (
            (memberships_file, "save"),
            (checkpoint, "save_checkpoint"),
            (SegmentList, "clear"),
            (LogFront, "replace"),
        ):
            self._wrap(owner, name, patched)
        patched.setattr(
            "dledger_node.store.log.checkpoints.save_checkpoint", checkpoint.save_checkpoint
        )

    def copy(self) -> None:
        self.copies.append(self._at / str(len(self.copies)))
        shutil.copytree(self._store._folder, self.copies[-1])

    def _wrap(self, owner: object, name: str, patched: pytest.MonkeyPatch) -> None:
        inner = getattr(owner, name)

        def outer(*arguments: object) -> None:
            self.copy()
            inner(*arguments)
            self.copy()

        patched.setattr(owner, name, outer)


@pytest.fixture
def leader(open_store: OpenStore, memory_path: Path) -> LogStore:
    """A log without its front; the second membership is in force before its first entry."""
    store = open_store(memory_path / "leader")
    fill(store)
    commit(store, 17)
    remove_front(store, 3)
    assert (store.begin_index, store.memberships.base) == (12, VOTES)
    return store


@pytest.mark.parametrize("begin", ["whole", "cut", "empty"])
@pytest.mark.parametrize("committed", [4, 8, 10, 11])
def test_a_crash_during_a_replacement_leaves_the_old_log_or_the_new_one(
    open_store: OpenStore,
    leader: LogStore,
    memory_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    begin: str,
    committed: int,
) -> None:
    store = open_store(memory_path / "follower")
    if begin != "empty":
        fill(store)
        commit(store, committed)
        if begin == "cut":
            remove_front(store, 1)
    old_begin = store.begin_index
    old = (store.memberships.base, store.memberships.entries)
    block = first_block_of(leader, store, 17)
    with monkeypatch.context() as patched:
        copier = Copier(store, memory_path / "copies", patched)
        store.replace(block, leader.memberships.base)
        copier.copy()

    new = (VOTES, ENTRIES[2:])
    assert (store.memberships.base, store.memberships.entries) == new
    seen = set()
    for folder in copier.copies:
        found = open_store(folder)
        said = (found.memberships.base, found.memberships.entries)
        if found.end_index < 0:
            assert said == (None, ())
        elif found.begin_index == 12:
            assert said == (VOTES, tuple(e for e in ENTRIES[2:] if e.index <= found.end_index))
            seen.add("new")
        else:
            assert found.begin_index == old_begin
            kept = tuple(entry for entry in old[1] if entry.index <= found.end_index)
            assert said == (old[0], kept)
            seen.add("old")
        found.close()
    assert seen == {"new"} if begin == "empty" else seen == {"new", "old"}
    commit(store, 17)
    assert memberships_file.load(store._folder)[-1] == ENTRIES[2]
    store.close()
    again = open_store(memory_path / "follower")
    assert (again.memberships.base, again.memberships.entries) == new


def test_a_leader_that_contradicts_a_committed_membership_is_refused(
    open_store: OpenStore, leader: LogStore, memory_path: Path
) -> None:
    store = open_store(memory_path / "follower")
    fill(store)
    commit(store, 9)

    with pytest.raises(StoreDamagedError, match="the logs differ") as refused:
        store.replace(first_block_of(leader, store, 17), None)

    assert refused.value.damage is Damage.DIVERGED
