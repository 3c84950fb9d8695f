"""Zeros written ahead of the log never overwrite an append, stay close to it, and are optional."""

import errno
import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from dledger_node.store.log.log_store import LogStore
from dledger_node.store.segments import zero_ahead
from dledger_node.volume.group_commit import GroupCommit
from dledger_store_files.contents import all_bytes, bodies_of, flush

OpenStore = Callable[..., LogStore]
SEGMENT_BYTES = 64 << 10
INDEX_SEGMENT_BYTES = 64 << 10
PIECE_BYTES = SEGMENT_BYTES // zero_ahead.SEGMENT_PIECES_MIN
RUN_BYTES = zero_ahead.RUN_PIECES * PIECE_BYTES
AHEAD_BYTES = zero_ahead.AHEAD_PIECES * PIECE_BYTES


@pytest.fixture(autouse=True)
def _any_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zero_ahead, "overwrites", lambda _: True)


@pytest.fixture
def zeros_at(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Record (start, end) of all writes of zeros."""
    pwrite, found = os.pwrite, []

    def watched(fd: int, data: bytes, at: int) -> int:
        if len(data) <= PIECE_BYTES and not any(data):
            found.append((at, at + len(data)))
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", watched)
    return found


def write_all(store: LogStore) -> None:
    while store.zero_ahead.is_due:
        store.zero_ahead.run()


def test_zeros_are_written_a_bounded_distance_ahead_of_the_end(
    open_store: OpenStore, zeros_at: list[tuple[int, int]]
) -> None:
    store = open_store(segment=SEGMENT_BYTES)
    store.append_bodies([b"x" * 1000] * 3, term=1)
    end_pos = 3 * 1048

    write_all(store)

    assert end_pos <= zeros_at[0][0] < end_pos + RUN_BYTES + PIECE_BYTES
    assert [start for start, _ in zeros_at[1:]] == [end for _, end in zeros_at[:-1]]
    assert AHEAD_BYTES - RUN_BYTES <= zeros_at[-1][1] - end_pos <= AHEAD_BYTES + RUN_BYTES


def test_a_new_store_writes_no_zeros_before_its_first_entry(
    open_store: OpenStore, zeros_at: list[tuple[int, int]]
) -> None:
    store = open_store(segment=SEGMENT_BYTES)

    assert not store.zero_ahead.is_due
    store.zero_ahead.run()
    assert zeros_at == []


def test_zeros_go_to_the_end_of_a_segment_and_not_beyond(
    open_store: OpenStore, zeros_at: list[tuple[int, int]]
) -> None:
    store = open_store(segment=SEGMENT_BYTES)
    store.append_bodies([bytes([7]) * (SEGMENT_BYTES - 2 * AHEAD_BYTES // 3)], term=1)
    write_all(store)
    assert zeros_at[-1][1] == SEGMENT_BYTES

    written = len(zeros_at)
    store.zero_ahead.run()
    assert len(zeros_at) == written, "no zeros are missing"

    store.append_bodies([bytes([8]) * AHEAD_BYTES], term=1)
    write_all(store)
    assert len(store.segments.data(1)) == 2
    assert zeros_at[written][0] >= AHEAD_BYTES, "zeros continue after the first entry of the next"


def test_a_reopened_log_gets_zeros_after_its_end(
    open_store: OpenStore, zeros_at: list[tuple[int, int]]
) -> None:
    store = open_store(segment=SEGMENT_BYTES)
    store.append_bodies([b"x" * 5000] * 3, term=1)
    store.close()
    zeros_at.clear()

    again = open_store(segment=SEGMENT_BYTES)
    write_all(again)

    assert 3 * 5048 <= zeros_at[0][0] < 3 * 5048 + PIECE_BYTES
    assert bodies_of(again) == [b"x" * 5000] * 3


def test_an_append_that_overtakes_a_piece_waits_for_it_and_is_not_overwritten(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(segment=SEGMENT_BYTES)
    store.append_bodies([b"first"], term=1)
    pwrite, begun, goes_on = os.pwrite, threading.Event(), threading.Event()

    def slow_zeros(fd: int, data: bytes, at: int) -> int:
        if not any(data):
            begun.set()
            assert goes_on.wait(30)
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", slow_zeros)
    with ThreadPoolExecutor(2) as workers:
        zeros = workers.submit(store.zero_ahead.run)
        assert begun.wait(30)
        append = workers.submit(store.append_bodies, [b"x" * 1000] * 30, 1)
        assert not wait([append], timeout=0.2).done, "it waits for the piece"
        goes_on.set()
        assert append.result(30) == (1, 30)
        zeros.result(30)

    assert bodies_of(store) == [b"first"] + [b"x" * 1000] * 30


@pytest.mark.parametrize("segment_bytes", [4096, SEGMENT_BYTES])
def test_appends_and_truncations_concurrent_with_zeros_lose_nothing(
    open_store: OpenStore, memory_path: Path, segment_bytes: int
) -> None:
    store = open_store(
        memory_path / "log", segment=segment_bytes, index_segment=INDEX_SEGMENT_BYTES
    )
    choices = random.Random(4)
    bodies: list[bytes] = []
    stop = threading.Event()

    def zeros_all_the_time() -> None:
        while not stop.is_set():
            store.zero_ahead.run()

    with ThreadPoolExecutor(1) as workers:
        zeros = workers.submit(zeros_all_the_time)
        try:
            for _ in range(300):
                batch = [
                    bytes([choices.randrange(1, 256)]) * choices.randrange(900)
                    for _ in range(choices.randrange(1, 8))
                ]
                store.append_bodies(batch, term=1)
                bodies += batch
                if choices.randrange(20) == 0:
                    first = max(1, len(bodies) - choices.randrange(1, 30))
                    store.truncate(first)
                    del bodies[first:]
        finally:
            stop.set()
        zeros.result()

    assert bodies_of(store) == bodies
    store.close()
    again = open_store(
        memory_path / "log", segment=segment_bytes, index_segment=INDEX_SEGMENT_BYTES
    )
    assert bodies_of(again) == bodies


def test_zeros_do_not_change_the_content_of_the_files(
    open_store: OpenStore, tmp_path: Path
) -> None:
    stores = [open_store(tmp_path / name, segment=SEGMENT_BYTES) for name in ("with", "without")]
    for number in range(40):
        for store in stores:
            store.append_bodies([b"%d" % number * 900] * 3, term=1)
            if number % 9 == 8:
                store.truncate(store.end_index - 5)
        stores[0].zero_ahead.run()
    for store in stores:
        store.close()

    assert all_bytes(tmp_path / "with" / "data") == all_bytes(tmp_path / "without" / "data")


def test_zeros_for_a_removed_segment_are_harmless(open_store: OpenStore) -> None:
    store = open_store(segment=4096)
    store.append_bodies([b"x" * 3000] * 2, term=1)
    last_file = store.zero_ahead._last_file

    def cut_meanwhile() -> object:
        file = last_file()
        if store.end_index == 1:
            store.truncate(1)
        return file

    store.zero_ahead._last_file = cut_meanwhile  # type: ignore[method-assign,assignment]
    store.zero_ahead.run()

    assert bodies_of(store) == [b"x" * 3000]


async def test_a_disk_that_rejects_zeros_still_accepts_appends(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, failures = open_store(segment=SEGMENT_BYTES), []
    refusals = 0

    def refuse() -> None:
        nonlocal refusals
        refusals += 1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store.zero_ahead, "run", refuse)
    with ThreadPoolExecutor(3) as executor:
        commit = GroupCommit(store, executor, on_durable=lambda _: None, on_failed=failures.append)
        for _ in range(5):
            store.append_bodies([b"x" * 5000], term=1)
            commit.start()
            await commit.drain()

    assert (refusals, failures, store.durable_index) == (1, [], 4)
    assert "zeros are no longer written ahead of the log: [Errno 28]" in caplog.text


async def test_group_commit_writes_zeros_only_without_a_flush_interval(
    open_store: OpenStore, tmp_path: Path, zeros_at: list[tuple[int, int]]
) -> None:
    for interval_s in (0.001, 0.0):
        store = open_store(tmp_path / f"{interval_s}", segment=SEGMENT_BYTES)
        with ThreadPoolExecutor(3) as executor:
            commit = GroupCommit(
                store, executor, interval_s=interval_s,
                on_durable=lambda _: None, on_failed=lambda _: None,
            )  # fmt: skip
            store.append_bodies([b"x" * 1000], term=1)
            await commit.drain()
        assert bool(zeros_at) is not bool(interval_s)


@pytest.mark.parametrize("outrun", [False, True])
async def test_group_commit_pauses_zeros_when_the_log_outruns_them(
    open_store: OpenStore, zeros_at: list[tuple[int, int]], outrun: bool
) -> None:
    store = open_store(segment=SEGMENT_BYTES)
    store.append_bodies([b"x"], term=1)
    store.zero_ahead.run()
    if outrun:
        store.append_bodies([b"x" * 2 * RUN_BYTES], term=1)
    zeros_at.clear()

    with ThreadPoolExecutor(3) as executor:
        commit = GroupCommit(
            store, executor, zeros_interval_s=0.0, zeros_pause_s=1e6,
            on_durable=lambda _: None, on_failed=lambda _: None,
        )  # fmt: skip
        for _ in range(3):
            commit.start()
            await commit.drain()

    runs = len(zeros_at) // zero_ahead.RUN_PIECES
    assert runs == 1 if outrun else runs >= 3


def test_zeros_are_written_only_on_file_systems_that_overwrite_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()

    assert not zero_ahead.overwrites(Path("/proc"))
    if Path("/dev/shm").is_mount():
        assert zero_ahead.overwrites(Path("/dev/shm"))


def test_zeros_are_never_synced_so_the_next_flush_reports_their_errors(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(segment=SEGMENT_BYTES)
    store.append_bodies([b"x"], term=1)
    flush(store)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    monkeypatch.setattr(os, "fsync", synced.append)

    write_all(store)

    assert synced == []
