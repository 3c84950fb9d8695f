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


def test_appended_entries_are_read_across_segments(open_store: OpenStore) -> None:
    store = open_store()

    assert store.append_bodies(BODIES, term=2) == (0, 39)
    assert bodies_of(store) == BODIES
    assert len(store.segments.data(39)) > 3
    assert len(store.segments.index(39)) == 4


def test_batches_of_any_size_write_the_same_bytes(open_store: OpenStore, tmp_path: Path) -> None:
    whole = open_store(tmp_path / "whole")
    parts = open_store(tmp_path / "parts")
    whole.append_bodies(BODIES, term=1)
    for start in range(0, len(BODIES), 3):
        parts.append_bodies(BODIES[start : start + 3], term=1)

    assert [bytes(view) for view in whole.read_range(0, 39, 1 << 20)[0]] == [
        bytes(view) for view in parts.read_range(0, 39, 1 << 20)[0]
    ]


def test_every_kind_of_buffer_can_be_a_body(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies([b"one", bytearray(b"two"), memoryview(b"three")], term=0)

    assert bodies_of(store) == [b"one", b"two", b"three"]


def test_a_noop_has_no_body_and_its_own_magic(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies([b"body"], term=1)

    assert store.append_noop(term=2) == 1
    header, body = store.entry(1)
    assert (header.magic, header.term, body) == (disk.NOOP, 2, b"")


def test_the_longest_body_fits_and_one_byte_more_is_refused(open_store: OpenStore) -> None:
    store = open_store()
    longest = bytes(store.body_bytes_max)

    store.append_bodies([longest, longest], term=1)
    with pytest.raises(ValueError, match="at most 4040 fit"):
        store.append_bodies([b"fits", longest + b"!"], term=1)
    assert bodies_of(store) == [longest, longest]


def test_the_longest_body_is_what_java_accepts(open_store: OpenStore) -> None:
    store = open_store(segment=8 << 20)

    assert store.body_bytes_max == 4 * 1024 * 1024 - 48


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
    """The kernel drops pages that it cannot write and reports it once; the next sync succeeds."""
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


def test_appends_run_concurrently_with_flushes_checkpoints_and_preallocation(
    open_store: OpenStore,
) -> None:
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


def test_a_log_can_be_appended_to_after_it_was_closed(
    open_store: OpenStore, tmp_path: Path
) -> None:
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


def test_the_checkpoint_keeps_the_committed_index(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    flush(store)
    store.save_checkpoint(17)
    store.close()

    assert open_store().committed_index == 17


def test_a_checkpoint_never_exceeds_the_durable_index(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES[:10], term=1)
    flush(store)
    store.append_bodies(BODIES[10:], term=1)
    store.save_checkpoint(committed_index=30)

    assert store.committed_index == 9


def test_a_store_can_be_opened_only_once(open_store: OpenStore, folder: Path) -> None:
    open_store()

    with pytest.raises(StoreInUseError, match=f"{folder} is in use by process "):
        open_store()


@pytest.mark.parametrize(
    ("call", "code", "error", "what"),
    [
        ("fcntl.flock", errno.ENOLCK, StoreError, "cannot lock {folder}: .*No locks available"),
        ("fcntl.flock", errno.EACCES, PermissionError, "Permission denied"),
        ("os.ftruncate", errno.EIO, StoreError, "cannot write {folder}/lock: .*put error"),
    ],
)
def test_a_disk_that_refuses_the_lock_file_does_not_leave_the_store_in_use(
    open_store: OpenStore,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    code: int,
    error: type[Exception],
    what: str,
) -> None:
    def fail(_fd: int, _what: int) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(call, fail)
        with pytest.raises(error, match=what.format(folder=folder)):
            open_store()

    assert open_store().end_index == -1


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


def test_a_released_file_stays_open_for_a_thread_that_reads_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    files = OpenFiles(limit=1)
    first = Holder()
    in_use = files.open(first, tmp_path / "a")
    files.open(Holder(), tmp_path / "b")

    assert first.descriptor is None
    assert os.pread(in_use.fd, 1, 0) == b"a"


def test_segments_are_preallocated_before_they_are_needed(
    open_store: OpenStore, folder: Path
) -> None:
    store = open_store(segment=1 << 20, index_segment=320)
    assert store.room_is_short
    store.preallocate()

    made = sorted(path.name for path in folder.glob("data-*"))

    assert len(made) == 2, "small segments are created two at a time"
    assert not store.room_is_short
    store.append_bodies([bytes(600_000)] * 2, term=1)
    assert store.room_is_short


def test_a_closed_store_does_not_open_its_files_again(open_store: OpenStore) -> None:
    """Another process may own the store by then."""
    store = open_store()
    store.append_bodies([b"x"], term=1)
    store.close()

    for use in (lambda: store.entry(0), lambda: store.append_bodies([b"y"], term=1)):
        with pytest.raises(ValueError, match="is closed"):
            use()
