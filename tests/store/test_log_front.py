from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_node.errors import StoreError
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.segments.segment import Segment
from dledger_node.store.small_files.checkpoint import load_checkpoint
from dledger_store_files.contents import bodies_of, flush
from dledger_store_files.upkeep import remove_front

OpenStore = Callable[..., LogStore]
Crashed = Callable[[LogStore], Path]
BODIES = [bytes([number]) * (number * 37 % 900) for number in range(40)]


@pytest.fixture
def store(open_store: OpenStore) -> LogStore:
    """Forty entries of eight terms, all committed, in more than three segments."""
    opened = open_store()
    for term in range(8):
        opened.append_bodies(BODIES[term * 5 : term * 5 + 5], term)
    flush(opened)
    opened.save_checkpoint(39)
    return opened


def test_all_segments_but_the_last_are_sealed(store: LogStore) -> None:
    sealed = store.front.sealed_segments()
    files = store.segments.data(39)

    assert len(sealed) == len(files) - 1 >= 3
    assert [segment.last_index + 1 for segment in sealed] == [
        file.first_index for file in files[1:]
    ]
    assert {segment.size_bytes for segment in sealed} == {4096}


def test_an_empty_log_has_no_sealed_segments(open_store: OpenStore) -> None:
    assert open_store().front.sealed_segments() == []


def test_a_log_continues_after_its_front_is_removed(store: LogStore, folder: Path) -> None:
    begin_index = remove_front(store, 2)

    assert store.begin_index == begin_index > 10
    assert bodies_of(store) == BODIES[begin_index:]
    assert store.term_runs()[0] == (begin_index, store.entry(begin_index)[0].term)
    assert store.term_runs()[-1] == (35, 7)
    assert len(list((folder / "data").iterdir())) == len(store.segments.data(39))
    assert min((folder / "index").iterdir()).name == f"{begin_index // 10 * 320:020}"
    with pytest.raises(IndexError):
        store.entry(begin_index - 1)
    store.append_bodies([b"more"], term=8)
    assert store.entry(40)[1] == b"more"


def test_a_log_without_its_front_is_the_same_after_a_restart(
    store: LogStore, open_store: OpenStore
) -> None:
    begin_index = remove_front(store, 2)
    runs = store.term_runs()
    store.close()

    again = open_store()

    assert (again.begin_index, again.end_index, again.term_runs()) == (begin_index, 39, runs)
    assert bodies_of(again) == BODIES[begin_index:]


@pytest.mark.parametrize("deleted", [0, 1, 2])
def test_a_start_finishes_a_removal_that_a_crash_interrupted(
    store: LogStore,
    open_store: OpenStore,
    crashed: Crashed,
    monkeypatch: pytest.MonkeyPatch,
    deleted: int,
) -> None:
    class Crash(BaseException):
        pass

    left = [deleted]
    unlink = Segment.remove

    def remove_some(file: Segment) -> None:
        if not left[0]:
            raise Crash
        left[0] -= 1
        unlink(file)

    first_index = store.front.sealed_segments()[1].last_index + 1
    with monkeypatch.context() as patched:
        patched.setattr(Segment, "remove", remove_some)
        with pytest.raises(Crash):
            remove_front(store, 2)

    again = open_store(crashed(store))

    assert again.begin_index == first_index
    assert bodies_of(again) == BODIES[first_index:]
    assert len(again.segments.data(39)) == len(store.segments.data(39))


def test_a_truncation_just_before_a_removal_lowers_its_checkpoint(
    store: LogStore, open_store: OpenStore, crashed: Crashed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention runs in a thread: the loop may truncate while that thread waits for the lock."""
    store.append_bodies([b"never committed"] * 3, term=8)
    flush(store)
    lock, truncated = store._checkpoints.lock, []

    class TruncatesFirst:
        def __enter__(self) -> None:
            if not truncated:
                truncated.append(True)
                monkeypatch.setattr(store._checkpoints, "lock", lock)
                store.truncate(40)
            lock.acquire()

        def __exit__(self, *error: object) -> None:
            lock.release()

    monkeypatch.setattr(store._checkpoints, "lock", TruncatesFirst())
    first_index = store.front.sealed_segments()[0].last_index + 1
    store.front.save_begin(first_index)

    assert truncated
    again = open_store(crashed(store))
    assert (again.begin_index, again.end_index) == (first_index, 39)


def test_a_saved_beginning_covers_no_entry_whose_index_unit_may_be_lost(
    store: LogStore, folder: Path
) -> None:
    """A start does not look at all index units that the checkpoint covers."""
    store.append_bodies([b"x"] * 30, term=9)
    flush(store)  # of the data alone

    store.front.save_begin(store.front.sealed_segments()[0].last_index + 1)

    saved = load_checkpoint(folder)
    assert saved is not None
    assert saved.end_index == 39


def test_uncommitted_entries_are_not_removed(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    flush(store)
    store.save_checkpoint(3)

    with pytest.raises(StoreError, match="are not committed"):
        remove_front(store, 1)
    assert bodies_of(store) == BODIES


def test_a_truncation_during_a_removal_does_not_move_the_beginning_back(
    store: LogStore, open_store: OpenStore, crashed: Crashed
) -> None:
    """The truncation saves a checkpoint. With the old beginning in it, the next start would report
    missing segments.
    """
    store.append_bodies([b"x"] * 3, term=9)
    flush(store)
    store.save_checkpoint(39)
    first_index = store.front.sealed_segments()[0].last_index + 1
    begin = store.front.save_begin(first_index)
    store.truncate(41)
    store.front.delete(store.front.forget_before(begin))

    assert open_store(crashed(store)).begin_index == first_index


def test_a_removal_does_not_disturb_a_flush_or_a_checkpoint(store: LogStore) -> None:
    store.append_bodies(BODIES, term=9)
    target = store.flush_target()
    remove_front(store, 3)

    store.flush(target)
    store.flushed(target)
    store.save_checkpoint(79)

    assert (store.durable_index, store.committed_index) == (79, 79)
