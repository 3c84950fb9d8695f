import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_node.errors import StoreError, StoreInUseError
from dledger_node.store.log.flush_target import FlushTarget
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.segments.open_files import Holder, OpenFiles
from dledger_store_files.contents import bodies_of, flush

OpenStore = Callable[..., LogStore]
Crashed = Callable[[LogStore], Path]
BODIES = [bytes([number]) * (number * 37 % 900) for number in range(40)]


def test_a_new_log_is_empty_and_begins_at_0(open_store: OpenStore) -> None:
    store = open_store()

    assert (store.begin_index, store.end_index, store.end_term) == (0, -1, -1)
    assert (store.durable_index, store.committed_index) == (-1, -1)
    assert store.term_runs() == []


def test_what_is_appended_is_read_across_segments(open_store: OpenStore) -> None:
    store = open_store()

    assert store.append_bodies(BODIES, term=2) == (0, 39)
    assert bodies_of(store) == BODIES
    assert len(store.segments.data(39)) > 3
    assert len(store.segments.index(39)) == 4


def test_a_batch_split_anywhere_gives_the_same_bytes(open_store: OpenStore, tmp_path: Path) -> None:
    whole = open_store(tmp_path / "whole")
    parts = open_store(tmp_path / "parts")
    whole.append_bodies(BODIES, term=1)
    for start in range(0, len(BODIES), 3):
        parts.append_bodies(BODIES[start : start + 3], term=1)

    assert [bytes(view) for view in whole.read_range(0, 39, 1 << 20)[0]] == [
        bytes(view) for view in parts.read_range(0, 39, 1 << 20)[0]
    ]


def test_every_kind_of_buffer_is_a_body(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies([b"one", bytearray(b"two"), memoryview(b"three")], term=0)

    assert bodies_of(store) == [b"one", b"two", b"three"]


def test_a_noop_is_an_entry_without_a_body_and_with_its_own_magic(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies([b"body"], term=1)

    assert store.append_noop(term=2) == 1
    header, body = store.entry(1)
    assert (header.magic, header.term, body) == (disk.NOOP, 2, b"")


def test_positions_follow_the_rolling_of_segments(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    end = 0
    for index, body in enumerate(BODIES):
        unit = store.position(index)
        assert unit.pos == disk.place_entry(48 + len(body), end, 4096)
        assert (unit.index, unit.term, unit.size) == (index, 1, 48 + len(body))
        end = unit.pos + unit.size


def test_terms_are_known_as_runs(open_store: OpenStore) -> None:
    store = open_store()
    for term, count in ((1, 3), (2, 1), (5, 12)):
        store.append_bodies([b"x"] * count, term)

    assert store.term_runs() == [(0, 1), (3, 2), (4, 5)]
    assert store.end_term == 5


@pytest.mark.parametrize("index", [-1, 3])
def test_an_entry_outside_of_the_log_is_an_index_error(open_store: OpenStore, index: int) -> None:
    store = open_store()
    store.append_bodies([b"x"] * 3, term=1)

    for ask in (store.entry, store.position, lambda index: store.read_range(index, index, 1)):
        with pytest.raises(IndexError, match="the log holds 0 to 2"):
            ask(index)


def test_the_longest_body_fits_and_one_byte_more_is_refused(open_store: OpenStore) -> None:
    store = open_store()
    longest = bytes(store.body_bytes_max)

    store.append_bodies([longest, longest], term=1)
    with pytest.raises(ValueError, match="at most 4040 fit"):
        store.append_bodies([b"fits", longest + b"!"], term=1)
    assert bodies_of(store) == [longest, longest]


def test_a_body_longer_than_java_can_take_is_refused(open_store: OpenStore) -> None:
    store = open_store(segment=8 << 20)

    assert store.body_bytes_max == 4 * 1024 * 1024 - 48


def test_a_range_is_read_as_it_is_stored_with_one_view_per_segment(open_store: OpenStore) -> None:
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


def test_a_range_gives_at_least_one_entry(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies([bytes(3000)] * 2, term=1)

    views, last_index = store.read_range(1, 1, 1)

    assert (last_index, len(views), len(views[0])) == (1, 1, 3048)


def test_the_tail_is_what_was_appended_last_as_it_is_stored(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES[:3], term=1)
    store.append_bodies(BODIES[3:6], term=1)

    tail = store.tail(3, 5)

    assert tail is not None
    assert [bytes(tail)] == store.read_range(3, 5, 1 << 20)[0]
    assert [store.tail(*other) for other in ((0, 2), (2, 5), (3, 4), (4, 5), (3, 6))] == [None] * 5


def test_the_tail_of_a_batch_that_crossed_a_segment_is_what_lies_in_the_last(
    open_store: OpenStore,
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    first_index = next(k for k in range(40) if store.tail(k, 39) is not None)

    tail = store.tail(first_index, 39)

    assert first_index > 0
    assert tail is not None
    assert [bytes(tail)] == store.read_range(first_index, 39, 1 << 20)[0]


def test_what_was_cut_is_no_tail(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES[:4], term=1)
    store.truncate(2)

    assert store.tail(0, 3) is None
    assert store.positions(0, 1) == [store.position(index).pos for index in (0, 1)]


def test_a_long_batch_does_not_stay_in_memory(open_store: OpenStore) -> None:
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


def test_an_append_is_durable_after_a_flush_that_began_later(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES[:20], term=1)
    target = store.flush_target()
    store.append_bodies(BODIES[20:], term=1)
    assert store.durable_index == -1

    thread = threading.Thread(target=store.flush, args=(target,))
    thread.start()
    thread.join()
    store.flushed(target)

    assert (target.end_index, target.end_term, store.durable_index) == (19, 1, 19)


def test_a_failed_flush_is_final(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel drops what it could not write and reports that once; the next call succeeds."""
    store = open_store()
    store.append_bodies([b"x"], term=1)

    def broken_disk(fd: int) -> None:
        raise OSError(errno.EIO, f"cannot write {fd}")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", broken_disk)
        with pytest.raises(StoreError, match="Check the disk"):
            store.flush(store.flush_target())

    with pytest.raises(StoreError, match="Check the disk"):
        store.flush(store.flush_target())
    assert store.durable_index == -1
    with pytest.raises(StoreError, match="Check the disk"):
        store.close()


def test_appends_run_beside_flushes_checkpoints_and_allocations(open_store: OpenStore) -> None:
    store = open_store()
    in_flight: tuple[FlushTarget, Future[None]] | None = None
    with ThreadPoolExecutor(3) as workers:
        others: list[Future[None]] = []
        for number in range(200):
            store.append_bodies(BODIES[number % 40 :], term=number // 50)
            if in_flight is not None and in_flight[1].done():
                in_flight[1].result()
                store.flushed(in_flight[0])
                in_flight = None
            if in_flight is None:
                target = store.flush_target()
                in_flight = target, workers.submit(store.flush, target)
            if number % 7 == 0:
                others.append(workers.submit(store.save_checkpoint, store.durable_index - 5))
            if number % 5 == 0:
                others.append(workers.submit(store.preallocate))
            if number % 31 == 0 and store.end_index - 3 > store.durable_index:
                store.truncate(store.end_index - 3)
        for done in others:
            done.result()
    flush(store)
    bodies = bodies_of(store)
    store.close()

    assert bodies_of(open_store()) == bodies
    assert len(bodies) > 3000


def test_a_log_is_the_same_after_it_was_closed(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    store.append_noop(term=4)
    store.close()

    again = open_store()

    assert bodies_of(again) == [*BODIES, b""]
    assert again.term_runs() == [(0, 1), (40, 4)]
    assert again.durable_index == 40
    assert (again.recovery.cut_bytes, again.recovery.cut_reason) == (0, "")


def test_a_log_goes_on_after_it_was_closed(open_store: OpenStore, tmp_path: Path) -> None:
    in_one_go = open_store(tmp_path / "other")
    in_one_go.append_bodies(BODIES, term=1)
    for number in range(4):
        store = open_store()
        store.append_bodies(BODIES[number * 10 : number * 10 + 10], term=1)
        store.close()

    store = open_store()

    assert [bytes(view) for view in store.read_range(0, 39, 1 << 20)[0]] == [
        bytes(view) for view in in_one_go.read_range(0, 39, 1 << 20)[0]
    ]


def test_the_committed_index_is_kept_by_the_checkpoint(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    flush(store)
    store.save_checkpoint(17)
    store.close()

    assert open_store().committed_index == 17


def test_a_checkpoint_never_says_more_than_is_durable(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES[:10], term=1)
    flush(store)
    store.append_bodies(BODIES[10:], term=1)
    store.save_checkpoint(committed_index=30)

    assert store.committed_index == 9


def test_a_store_is_open_once(open_store: OpenStore, folder: Path) -> None:
    open_store()

    with pytest.raises(StoreInUseError, match=f"{folder} is in use by process "):
        open_store()


def test_a_closed_store_can_be_opened(open_store: OpenStore) -> None:
    open_store().close()

    assert open_store().end_index == -1


def test_a_log_of_many_segments_keeps_few_files_open(
    open_store: OpenStore,
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    store = open_store(open_files_max=3)
    for number in range(30):
        store.append_bodies(BODIES[number % 7 :], term=number)
        flush(store)
        store.save_checkpoint(store.durable_index)
    bodies = bodies_of(store)

    assert len(store.segments.data(store.end_index)) > 60
    assert len(os.listdir("/proc/self/fd")) - before < 12
    store.close()
    assert bodies_of(open_store()) == bodies


def test_a_thread_that_reads_a_file_that_is_let_go_of_is_not_disturbed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    files = OpenFiles(limit=1)
    first = Holder()
    in_use = files.open(first, tmp_path / "a")
    files.open(Holder(), tmp_path / "b")

    assert first.descriptor is None
    assert os.pread(in_use.fd, 1, 0) == b"a"


def test_room_is_made_before_it_is_needed(open_store: OpenStore, folder: Path) -> None:
    store = open_store(segment=1 << 20, index_segment=320)
    assert store.room_is_short
    store.preallocate()

    made = sorted(path.name for path in folder.glob("data-*"))

    assert len(made) == 2, "two of these small segments"
    assert not store.room_is_short
    store.append_bodies([bytes(600_000)] * 2, term=1)
    assert store.room_is_short


def test_a_closed_store_does_not_open_its_files_again(open_store: OpenStore) -> None:
    """Another process may own them by then."""
    store = open_store()
    store.append_bodies([b"x"], term=1)
    store.close()

    for use in (lambda: store.entry(0), lambda: store.append_bodies([b"y"], term=1)):
        with pytest.raises(ValueError, match="is closed"):
            use()
