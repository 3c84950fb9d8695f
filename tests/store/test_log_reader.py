"""Read positions, terms, ranges and the tail of a log."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_node.errors import StoreDamagedError
from dledger_node.store.log.files import LogFiles
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.stored_range import RangeMovedError
from dledger_node.store.segments import page_cache
from dledger_store_files.damage import flip

OpenStore = Callable[..., LogStore]
BODIES = [bytes([number]) * (number * 37 % 900) for number in range(40)]


def test_positions_follow_the_rolling_of_segments(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    end = 0
    for index, body in enumerate(BODIES):
        unit = store.position(index)
        assert unit.pos == disk.place_entry(48 + len(body), end, 4096)
        assert (unit.index, unit.term, unit.size) == (index, 1, 48 + len(body))
        end = unit.pos + unit.size


def test_the_terms_of_a_log_are_known_as_runs(open_store: OpenStore) -> None:
    store = open_store()
    for term, count in ((1, 3), (2, 1), (5, 12)):
        store.append_bodies([b"x"] * count, term)

    assert store.term_runs() == [(0, 1), (3, 2), (4, 5)]
    assert store.end_term == 5


@pytest.mark.parametrize("index", [-1, 3])
def test_reading_outside_the_log_raises_index_error(open_store: OpenStore, index: int) -> None:
    store = open_store()
    store.append_bodies([b"x"] * 3, term=1)

    for ask in (store.entry, store.position, lambda index: store.read_range(index, index, 1)):
        with pytest.raises(IndexError, match="the log holds 0 to 2"):
            ask(index)


def test_positions_in_a_segment_that_was_just_closed_raise_index_error(
    open_store: OpenStore,
) -> None:
    """They raised a ValueError, after which a broker no longer looked for delayed messages."""
    store = open_store()
    store.append_bodies([b"x"], term=1)
    store.append_bodies([b"y"], term=1)
    store.close()

    with pytest.raises(IndexError, match="is closed"):
        store.positions(0, 0)


def test_a_range_is_read_as_stored_in_one_run_per_segment(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)

    views, last_index = store.read_range(5, 39, 1 << 20)

    assert last_index == 39
    assert len(views) == len(store.segments.data(39))
    stored = b"".join(views)
    for index in range(5, 40):
        header = disk.check_entry(stored, 0, len(stored))
        assert (header.index, stored[48 : header.size]) == (index, BODIES[index])
        stored = stored[header.size :]
    assert stored == b""


def test_a_range_ends_before_the_entry_that_exceeds_its_bytes(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies([bytes(52)] * 10, term=1)

    assert store.read_range(2, 9, 299)[1] == 3
    assert store.read_range(2, 9, 300)[1] == 4
    assert [len(view) for view in store.read_range(2, 9, 300)[0]] == [300]


def test_a_range_has_at_least_one_entry(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies([bytes(3000)] * 2, term=1)

    views, last_index = store.read_range(1, 1, 1)

    assert (last_index, len(views), len(views[0])) == (1, 1, 3048)


def test_the_tail_is_the_last_batch_as_stored(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES[:3], term=1)
    store.append_bodies(BODIES[3:6], term=1)

    tail = store.tail(3, 5)

    assert tail is not None
    assert [bytes(tail)] == store.read_range(3, 5, 1 << 20)[0]
    assert [store.tail(*other) for other in ((0, 2), (2, 5), (3, 4), (4, 5), (3, 6))] == [None] * 5


def test_the_tail_of_a_batch_over_two_segments_is_its_part_in_the_last(
    open_store: OpenStore,
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    first_index = next(k for k in range(40) if store.tail(k, 39) is not None)

    tail = store.tail(first_index, 39)

    assert first_index > 0
    assert tail is not None
    assert [bytes(tail)] == store.read_range(first_index, 39, 1 << 20)[0]


def test_a_truncation_drops_the_tail(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES[:4], term=1)
    store.truncate(2)

    assert store.tail(0, 3) is None
    assert store.positions(0, 1) == [store.position(index).pos for index in (0, 1)]


def test_a_long_batch_is_not_kept_as_the_tail(open_store: OpenStore) -> None:
    store = open_store(segment=4 << 20)
    store.append_bodies([bytes(1 << 19)] * 2, term=1)

    assert store.tail(0, 1) is None


def test_positions_are_the_same_in_the_tail_and_before_it(open_store: OpenStore) -> None:
    store = open_store()
    for start in range(0, 40, 4):
        store.append_bodies(BODIES[start : start + 4], term=1)

    for first_index, last_index in ((36, 39), (37, 38), (39, 39), (35, 39), (0, 39), (3, 3)):
        assert store.positions(first_index, last_index) == [
            store.position(index).pos for index in range(first_index, last_index + 1)
        ]


def test_a_read_verifies_the_chain_of_its_first_entry_and_of_every_segments_first(
    written: Path, open_store: Callable[..., LogStore]
) -> None:
    """A flipped channel there was pushed for ever: only the follower noticed it."""
    store = open_store()
    store.distrust()
    starts = [pos for pos in store.positions(0, store.end_index) if pos and pos % 4096 == 0]
    assert starts
    for pos in starts:
        flip(written / disk.DATA_FOLDER, pos + 35)
        index = store.positions(0, store.end_index).index(pos)
        for first_index in (index - 1, index):
            with pytest.raises(StoreDamagedError, match="bad_chain_crc"):
                store.read_range(first_index, store.end_index, 1 << 20)
        flip(written / disk.DATA_FOLDER, pos + 35)


Reading = Callable[[LogStore, int, int], object]


def _checked(store: LogStore, first_index: int, last_index: int) -> object:
    return store.checked_range(first_index, last_index, 1 << 20, wait=False)


def _to_push(store: LogStore, first_index: int, last_index: int) -> object:
    found = store.range_to_push(first_index, last_index, 1 << 20, wait=False)
    return None if found is None else found[0]


WITHOUT_WAIT = pytest.mark.parametrize("read", [_checked, _to_push])


@WITHOUT_WAIT
def test_a_read_without_a_wait_is_the_same_and_has_as_many_system_calls(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, read: Reading
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    counts = {"pread": 0, "preadv": 0}
    for name in counts:
        call = getattr(os, name)

        def counted(*arguments: object, name: str = name, call: Callable[..., int] = call) -> int:
            counts[name] += 1
            return call(*arguments)

        monkeypatch.setattr(os, name, counted)
    waited = store.checked_range(5, 39, 1 << 20, wait=True)
    if read is _to_push:
        counts["pread"] = 0
        waited = store.read_range(5, 39, 1 << 20)[0]  # type: ignore[assignment]

    assert read(store, 5, 39) == waited
    assert counts["preadv"] == counts["pread"]


@WITHOUT_WAIT
def test_a_read_without_a_wait_gives_up_where_the_page_cache_lacks_bytes(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, read: Reading
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    read_cached, lacks = page_cache.read_cached, [0]

    def partly(fd: int, buffer: bytearray | memoryview, at: int) -> int:
        lacks[0] -= 1
        return 0 if lacks[0] == 0 else read_cached(fd, buffer, at)

    monkeypatch.setattr(page_cache, "read_cached", partly)
    call = 0
    while lacks[0] <= 0:
        call += 1
        lacks[0] = call
        data = read(store, 5, 39)
        assert (data is None) == (lacks[0] <= 0)

    assert call > 2
    assert store.damage is None


@WITHOUT_WAIT
def test_a_read_outside_the_log_says_that_the_range_has_moved(
    open_store: OpenStore, read: Reading
) -> None:
    store = open_store()
    store.append_bodies([b"x"] * 3, term=1)
    for first_index, last_index in ((-1, 1), (0, 3)):
        with pytest.raises(RangeMovedError):
            read(store, first_index, last_index)
    store.close()
    with pytest.raises(RangeMovedError):
        read(store, 0, 2)


@pytest.mark.parametrize("moves", [True, False])
def test_damage_found_while_the_log_loses_its_front_is_none(
    written: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, moves: bool
) -> None:
    store = open_store()
    flip(written / disk.DATA_FOLDER, store.positions(20, 20)[0] + 50)
    writer, header = store._writer, LogFiles.header

    def move(files: LogFiles, index: int) -> disk.EntryHeader:
        if moves:
            monkeypatch.setattr(writer, "begin", writer.begin._replace(first_index=1))
        return header(files, index)

    monkeypatch.setattr(LogFiles, "header", move)
    with pytest.raises(RangeMovedError if moves else StoreDamagedError):
        store.checked_range(20, 20, 1 << 20, wait=True)

    assert (store.damage is None) == moves
