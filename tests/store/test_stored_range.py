"""Runs of entries as they lie on disk: their place, and what becomes of it."""

import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log.disk import INDEX_UNIT_SIZE
from dledger_formats.log.runs import bodies_of
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.store.log.files import LogFiles
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.stored_range import RangeMovedError, StoredRange
from dledger_store_files.contents import flush
from dledger_store_files.upkeep import remove_before

OpenStore = Callable[..., LogStore]
BODIES = [bytes([number]) * (number * 37 % 900) for number in range(40)]
LAST = len(BODIES) - 1


@pytest.fixture
def store(open_store: OpenStore) -> LogStore:
    """Forty committed entries in several data and index segments."""
    opened = open_store()
    opened.append_bodies(BODIES, 1)
    flush(opened)
    opened.save_checkpoint(LAST)
    return opened


def found(store: LogStore, first: int, last: int = LAST, bytes_max: int = 1 << 20) -> StoredRange:
    stored = store.stored_range(first, last, bytes_max)
    assert stored is not None
    return stored


def forget_cache(folder: Path) -> None:
    """Drop the pages of all segments from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def test_ranges_after_each_other_give_the_whole_log(store: LogStore) -> None:
    bodies: list[bytes] = []
    while len(bodies) <= LAST:
        stored = found(store, len(bodies))
        assert stored.first.pos // 4096 == (stored.last.pos + stored.last.size - 1) // 4096
        bodies += bodies_of(stored.read(0), stored.first.index)

    assert bodies == BODIES


@pytest.mark.parametrize("bytes_max", [1, 48, 500, 1000, 4096, 1 << 20])
@pytest.mark.parametrize(("first", "last"), list(itertools.product((0, 7, 12), (12, 30))))
def test_a_range_holds_as_many_whole_entries_as_fit_and_at_least_one(
    store: LogStore, first: int, last: int, bytes_max: int
) -> None:
    stored = found(store, first, last, bytes_max)

    assert first == stored.first.index <= stored.last.index <= last
    assert stored.size <= bytes_max or stored.last.index == first
    assert len(stored.read(0)) == stored.size


def test_a_range_that_is_in_memory_is_read_without_a_wait(store: LogStore) -> None:
    stored = store.stored_range(0, LAST, 1000, wait=False)

    assert stored is not None
    assert stored.read_cached() == stored.read(0)


def test_a_range_that_is_not_in_memory_is_not_read_without_a_wait(
    store: LogStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the kernel answers is replaced: a read that does not wait makes it read ahead, and some
    disks are in time for it.
    """
    stored = found(store, 0)
    forget_cache(folder)

    def not_in_memory(_fd: int, _buffers: object, _at: int, flags: int = 0) -> int:
        assert flags == os.RWF_NOWAIT
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr("os.preadv", not_in_memory)
        assert stored.read_cached() is None
        assert store.stored_range(0, LAST, 1000, wait=False) is None

    assert bodies_of(stored.read(4096), 0) == BODIES[: stored.last.index + 1]
    assert stored.read_cached() is not None


def test_a_range_of_a_removed_segment_has_moved(store: LogStore) -> None:
    stored = found(store, 0)
    first_index = store.front.sealed_segments()[0].last_index + 1
    remove_before(store, first_index)

    assert not store.still_holds(stored)
    for read in (stored.read_cached, lambda: stored.read(0), lambda: found(store, 0)):
        with pytest.raises(RangeMovedError):
            read()


def test_a_range_is_not_held_after_a_truncation(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES, 1)
    stored = found(store, 0)
    store.truncate(5)

    assert not store.still_holds(stored)


def test_a_range_of_a_closed_store_has_moved(store: LogStore) -> None:
    stored = found(store, 0)
    store.close()

    for read in (stored.read_cached, lambda: stored.read(0), lambda: found(store, 0)):
        with pytest.raises(RangeMovedError):
            read()


def test_damage_of_the_index_file_is_noted_with_the_entry(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the entry, the damage would be looked for at the log's beginning."""

    def unreadable(*_: object, **__: object) -> None:
        raise StoreDamagedError("an unreadable sector", Damage.UNREADABLE)

    monkeypatch.setattr(LogFiles, "segment_run", unreadable)
    with pytest.raises(StoreDamagedError):
        store.stored_range(2, 3, 1 << 20)

    assert store.damage is not None
    assert store.damage.index == 2


@pytest.mark.parametrize("index", [0, 3])
def test_an_index_that_names_a_wrong_place_is_damage(
    store: LogStore, folder: Path, index: int
) -> None:
    path = min((folder / "index").iterdir())
    with path.open("r+b") as file:
        file.seek(index * INDEX_UNIT_SIZE + 11)  # the last byte of the position
        byte = file.read(1)[0]
        file.seek(index * INDEX_UNIT_SIZE + 11)
        file.write(bytes([byte ^ 4]))

    with pytest.raises(StoreDamagedError) as caught:
        found(store, 0, 3).read(0)
    assert caught.value.damage is Damage.WRONG_INDEX
