"""Replace a log by the first entries of its leader's log."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.log.channels import channel_of
from dledger_node.errors import RemoteProtocolError, StoreFullError
from dledger_node.store.derived.producers import Finding
from dledger_node.store.log.flush_target import FlushTarget
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.segments.segment_list import SegmentList
from dledger_node.volume.group_commit import GroupCommit

OpenStore = Callable[..., LogStore]
Crashed = Callable[[LogStore], Path]

FIRST_INDEX = 100
LEADERS_POS = 5 * 4096
"""The position where the leader's log begins, which is the start of a segment."""


def leaders_first_entries(pos: int = LEADERS_POS) -> bytes:
    """Return the registration of producer 7 and its first append, as the leader stores them."""
    registration = disk.pack_entries(
        [b""], magic=disk.NOOP, first_index=FIRST_INDEX, term=2, pos=pos,
        previous_chain_crc=4711, channels=[channel_of(7, 0)],
    )  # fmt: skip
    append = disk.pack_entries(
        [b"x"], magic=disk.NORMAL, first_index=FIRST_INDEX + 1, term=2,
        pos=pos + len(registration.data), previous_chain_crc=registration.chain_crc,
        channels=[channel_of(7, 1)],
    )  # fmt: skip
    return registration.data + append.data


def replace_log(store: LogStore) -> None:
    block = store.front.check(
        leaders_first_entries(), first_index=FIRST_INDEX, last_index=FIRST_INDEX + 1, term=2
    )
    store.replace(block)


@pytest.fixture
def store(open_store: OpenStore) -> LogStore:
    """A log with another producer, which the file `producers` contains too."""
    store = open_store()
    store.append_bodies([b""], 1, [channel_of(3, 0)], disk.NOOP)
    store.append_bodies([b"old"] * 20, 1, [channel_of(3, number) for number in range(1, 21)])
    store.producers.table.mark_stable(store.end_index)
    store.producers.save_at_close()
    return store


@contextmanager
def full_volume(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no segment be made, and take those that were made ahead."""

    def full(_: SegmentList) -> None:
        raise StoreFullError("the volume is full")

    with monkeypatch.context() as patched:
        patched.setattr(SegmentList, "_make_spare", full)
        for files in (store._files.data, store._files.index):
            files._spares.clear()
        yield


def flush(store: LogStore) -> None:
    target = store.flush_target()
    store.flush(target)
    store.flushed(target)


def test_a_full_volume_stops_a_replacement_and_leaves_a_log_that_opens(
    store: LogStore,
    open_store: OpenStore,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log is gone by then, and nothing of the new one is durable."""
    flush(store)

    with full_volume(store, monkeypatch):
        with pytest.raises(StoreFullError):
            replace_log(store)
        flush(store)
        store.save_checkpoint(store.end_index)
        store.close()

    again = open_store(folder)
    assert (again.end_index, again.durable_index) == (-1, -1)


async def test_a_member_whose_replacement_met_a_full_volume_flushes_nothing_and_can_stop(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a log ends before its first entry, so no flush would ever make its end durable."""
    flush(store)
    with full_volume(store, monkeypatch), pytest.raises(StoreFullError):
        replace_log(store)
    durable: list[FlushTarget] = []

    with ThreadPoolExecutor(3) as executor:
        commit = GroupCommit(store, executor, on_durable=durable.append, on_failed=lambda _: None)
        commit.start()
        async with asyncio.timeout(10):
            await commit.drain()

    assert (store.has_unflushed, durable) == (False, [])


def test_a_replaced_log_holds_only_the_new_entries_and_continues_after_them(
    store: LogStore,
) -> None:
    replace_log(store)

    assert (store.begin_index, store.end_index, store.end_term) == (100, 101, 2)
    assert store.durable_index == -1
    assert store.entry(101)[1] == b"x"
    with pytest.raises(IndexError):
        store.entry(99)
    assert store.append_bodies([b"next"], 3) == (102, 102)


def test_a_replaced_log_is_the_same_after_a_crash(
    store: LogStore, open_store: OpenStore, crashed: Crashed
) -> None:
    replace_log(store)
    flush(store)

    again = open_store(crashed(store))

    assert (again.begin_index, again.end_index, again.durable_index) == (100, 101, 101)
    assert again.entry(101)[1] == b"x"


def test_a_crash_before_the_old_files_are_gone_leaves_the_old_log_and_its_beginning(
    store: LogStore,
    open_store: OpenStore,
    crashed: Crashed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its entries from the leader's first one on may never have been committed."""
    store.append_bodies([b"old"] * FIRST_INDEX, 1)
    flush(store)
    store.save_checkpoint(20)
    monkeypatch.setattr(store.front, "replace", lambda _: None)

    replace_log(store)

    again = open_store(crashed(store))
    assert (again.begin_index, again.end_index) == (0, FIRST_INDEX + 20)
    again.truncate(FIRST_INDEX)
    assert again.end_index == FIRST_INDEX - 1


def test_files_that_retention_has_yet_to_delete_are_gone_before_the_new_log_begins(
    store: LogStore, open_store: OpenStore, crashed: Crashed
) -> None:
    store.append_bodies([b"old" * 100] * 40, 1)
    flush(store)
    store.save_checkpoint(store.end_index)
    first_index = store.front.sealed_segments()[0].last_index + 1
    begin = store.front.save_begin(first_index)
    files = store.front.forget_before(begin)

    replace_log(store)

    again = open_store(crashed(store))
    assert (again.begin_index, again.end_index) == (FIRST_INDEX, FIRST_INDEX + 1)
    store.front.delete(files)
    assert not any(file.path.exists() for file in files)


def test_a_replaced_log_knows_only_the_producers_of_its_new_entries(
    store: LogStore, open_store: OpenStore, crashed: Crashed
) -> None:
    assert store.producers.table.find(0, 20) == 20

    replace_log(store)
    flush(store)

    for log in (store, open_store(crashed(store))):
        assert log.producers.table.find(FIRST_INDEX, 1) == FIRST_INDEX + 1
        assert log.producers.table.find(0, 20) is Finding.UNKNOWN_PRODUCER


def test_entries_that_do_not_begin_a_segment_are_refused(store: LogStore) -> None:
    with pytest.raises(RemoteProtocolError, match="does not begin a segment"):
        store.front.check(
            leaders_first_entries(LEADERS_POS + 64),
            first_index=FIRST_INDEX, last_index=FIRST_INDEX + 1, term=2,
        )  # fmt: skip

    assert store.end_index == 20
