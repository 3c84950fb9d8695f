"""Damaged queues of delayed messages put off none, and are built again also at members that do not
deliver them.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.errors import UnitRefusedError
from dledger_broker.queues.reader import MessageReader
from dledger_broker.queues.undelivered import UndeliveredMessages
from dledger_formats.log import disk
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.rocketmq import consume_queue, message_record
from dledger_formats.rocketmq.consume_queue import Unit
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_formats.rocketmq.topic_names import SCHEDULE_TOPIC
from dledger_node.errors import StoreError

FIRST_SEEN = 3


class Feed:
    """Queues that have all messages, or not, and are built again on demand."""

    def __init__(self, *, has_all: bool) -> None:
        self.has_all = has_all
        self.rebuilds = FIRST_SEEN
        self.reasons: list[str] = []

    def rebuild(self, reason: str, seen_rebuilds: int) -> None:
        assert seen_rebuilds == FIRST_SEEN, "it takes note before it reads"
        self.reasons.append(reason)


def one_level(level: int) -> int:
    return 5 if level == 1 else 10


async def looked(feed: Feed, index_of: Callable[..., int | None]) -> int:
    """Look once for messages of level 1 that wait; return what the log need not keep."""
    state: Any = SimpleNamespace(delay_position=one_level, next_offset=lambda *_: 10)
    member: Any = SimpleNamespace(applied_index=7, machine=lambda _: state)
    reader: Any = SimpleNamespace(index_of=index_of)
    queues: Any = feed
    with ThreadPoolExecutor(1) as threads:
        undelivered = UndeliveredMessages(member, queues, reader, threads)
        undelivered.tick()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    return undelivered.covered_index


def refused(feed: Feed) -> int:
    feed.rebuilds += 1
    raise UnitRefusedError("a unit contradicts the log")


@pytest.mark.parametrize("has_all", [True, False])
async def test_queues_that_have_all_messages_and_contradict_the_log_are_built_again(
    has_all: bool,
) -> None:
    feed = Feed(has_all=has_all)
    covered = await looked(feed, lambda *_, **__: refused(feed))

    assert feed.reasons == ["a unit contradicts the log"] * has_all
    assert covered == -1, "the log keeps what may wait"


@pytest.mark.parametrize("error", [StoreError("a rotten block"), IndexError(7), OSError(5, "EIO")])
async def test_the_log_keeps_what_may_wait_while_the_queues_cannot_be_read(
    error: Exception,
) -> None:
    def fails(*_: object, **__: object) -> int:
        raise error

    assert await looked(Feed(has_all=True), fails) == -1


async def test_the_log_keeps_the_first_message_that_waits() -> None:
    feed = Feed(has_all=True)

    assert await looked(feed, lambda *_, **__: 4) == 3
    assert feed.reasons == []


class Level:
    """A level of delayed messages, one second apart, with its log and its units."""

    queue = QueueId(SCHEDULE_TOPIC, 0)

    def __init__(self, count: int) -> None:
        self.stored = b""
        self.units: list[Unit] = []
        for offset in range(count):
            record = MessageRecord(
                *self.queue, offset, len(self.stored) + ENTRY_HEADER_SIZE, b"x",
                properties=b"DELAY\x011\x02", store_timestamp=1_000_000 + offset * 1000,
            )  # fmt: skip
            body = bytes(message_record.encode(record))
            packed = disk.pack_entries(
                [body], magic=disk.NORMAL, first_index=offset, term=1, pos=len(self.stored),
                previous_chain_crc=0,
            )  # fmt: skip
            self.stored += bytes(packed.data)
            unit = Unit(record.physical_offset, len(body), consume_queue.tags_code(record))
            self.units.append(unit)

    def due(self, now_ms: int, first: int = 0, waited_end: int = 0) -> tuple[list[int], int]:
        """Return the offsets of the messages that are due, and when something may be next."""
        store: Any = SimpleNamespace(units=lambda _t, _q, at, count: self.units[at : at + count])
        front: Any = None
        reader = MessageReader(
            store, lambda pos, size: self.stored[pos : pos + size],
            lambda: 0, lambda _: 0, lambda: 0, front,
        )  # fmt: skip
        due = reader.due(
            self.queue, first, len(self.units), now_ms,
            has_all=True, messages_max=64, bytes_max=1 << 20, waited_end=waited_end,
        )  # fmt: skip
        return [record.queue_offset for record in due.records], due.next_ms


def test_delayed_messages_are_due_at_the_times_of_their_units() -> None:
    level = Level(3)
    first_ms, second_ms, _ = (unit.tags_code for unit in level.units)

    assert level.due(first_ms - 1) == ([], first_ms)
    assert level.due(first_ms) == ([0], 0)
    assert level.due(first_ms, 1) == ([], second_ms)
    assert level.due(second_ms) == ([0, 1], 0)


def test_delayed_messages_that_have_waited_long_enough_are_due_whatever_their_units_say() -> None:
    level = Level(3)

    assert level.due(0, waited_end=1) == ([0], 0)
    assert level.due(0, waited_end=3) == ([0, 1, 2], 0)
    assert level.due(0, 1, waited_end=1) == ([], level.units[1].tags_code)


@pytest.mark.parametrize("bit", [0, 9, 40, 57, 62])
def test_a_unit_that_names_another_time_than_its_message_is_refused(bit: int) -> None:
    """A flipped bit in it would put off this message and those after it, by millions of years."""
    level = Level(3)
    sound = level.units[1]
    level.units[1] = sound._replace(tags_code=sound.tags_code ^ 1 << bit)

    with pytest.raises(UnitRefusedError, match="names the time"):
        level.due(sound.tags_code, 1)
    assert level.due(level.units[0].tags_code)[0] == [0], "those before it are delivered"
