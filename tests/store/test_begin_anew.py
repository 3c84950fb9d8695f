"""A log that is replaced by its leader's first entries: what it then holds, and knows."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.log.channels import channel_of
from dledger_node.errors import RemoteProtocolError
from dledger_node.store.derived.producers import Finding
from dledger_node.store.log.log_store import LogStore

OpenStore = Callable[..., LogStore]
Crashed = Callable[[LogStore], Path]

FIRST_INDEX = 100
LEADERS_POS = 5 * 4096
"""Where the leader's log begins now: with a segment."""


def leaders_first_entries(pos: int = LEADERS_POS) -> bytes:
    """The registration of producer 7 and its first append, as a leader's log has them."""
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


def begin_anew(store: LogStore) -> None:
    block = store.front.check(
        leaders_first_entries(), first_index=FIRST_INDEX, last_index=FIRST_INDEX + 1, term=2
    )
    store.replace(block)


@pytest.fixture
def store(open_store: OpenStore) -> LogStore:
    """A log with a producer of its own, known in the file `producers` too."""
    store = open_store()
    store.append_bodies([b""], 1, [channel_of(3, 0)], disk.NOOP)
    store.append_bodies([b"old"] * 20, 1, [channel_of(3, number) for number in range(1, 21)])
    store.producers.table.mark_stable(store.end_index)
    store.producers.save_at_close()
    return store


def flush(store: LogStore) -> None:
    target = store.flush_target()
    store.flush(target)
    store.flushed(target)


def test_it_holds_the_new_entries_alone_and_goes_on_behind_them(store: LogStore) -> None:
    begin_anew(store)

    assert (store.begin_index, store.end_index, store.end_term) == (100, 101, 2)
    assert store.durable_index == -1
    assert store.entry(101)[1] == b"x"
    with pytest.raises(IndexError):
        store.entry(99)
    assert store.append_bodies([b"next"], 3) == (102, 102)


def test_it_is_the_same_after_a_crash(
    store: LogStore, open_store: OpenStore, crashed: Crashed
) -> None:
    begin_anew(store)
    flush(store)

    again = open_store(crashed(store))

    assert (again.begin_index, again.end_index, again.durable_index) == (100, 101, 101)
    assert again.entry(101)[1] == b"x"


def test_it_knows_those_who_are_named_in_its_new_entries(
    store: LogStore, open_store: OpenStore, crashed: Crashed
) -> None:
    assert store.producers.table.find(0, 20) == 20

    begin_anew(store)
    flush(store)

    for log in (store, open_store(crashed(store))):
        assert log.producers.table.find(FIRST_INDEX, 1) == FIRST_INDEX + 1
        assert log.producers.table.find(0, 20) is Finding.UNKNOWN_PRODUCER


def test_entries_that_begin_no_segment_are_refused(store: LogStore) -> None:
    with pytest.raises(RemoteProtocolError, match="does not begin a segment"):
        store.front.check(
            leaders_first_entries(LEADERS_POS + 64),
            first_index=FIRST_INDEX, last_index=FIRST_INDEX + 1, term=2,
        )  # fmt: skip

    assert store.end_index == 20
