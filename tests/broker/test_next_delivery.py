"""When a leader has to look for delayed messages next."""

import math
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.leading.delay_walker import RETRY_S, DelayWalker
from dledger_broker.messages import delays
from dledger_broker.queues.reader import Due
from dledger_formats.rocketmq import topic_names
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_node.errors import StoreError
from dledger_wire.listener import until

NOW_MS = 1_000_000
LEVEL = 3


class Owner:
    """A leader at a fixed time; one level has messages."""

    def __init__(self, waiting: int) -> None:
        self.is_proven, self.term, self.state = True, 1, self
        self.tables = SimpleNamespace(topics=None)
        self.waiting = waiting

    def wall_ms(self) -> int:
        return NOW_MS

    def delay_position(self, _: int) -> int:
        return 0

    def next_offset(self, _: str, queue_id: int) -> int:
        return self.waiting if queue_id == LEVEL - 1 else 0


class Reader:
    """Finds records that are due, and that no other is before a time; 0 if it finds no other."""

    def __init__(
        self, next_ms: int, error: Exception | None = None, records: Sequence[MessageRecord] = ()
    ) -> None:
        self.next_ms, self.error, self.records = next_ms, error, list(records)
        self.may_read = threading.Event()

    def due(self, *_: object, **__: object) -> Due:
        self.may_read.wait()
        if self.error:
            raise self.error
        return Due(self.records, self.next_ms)


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def walker(owner: Owner, reader: Reader, thread: ThreadPoolExecutor) -> DelayWalker:
    parts: Any = (owner, SimpleNamespace(has_all=True, rebuilds=0), reader)
    return DelayWalker(*parts, thread, lambda: b"")


async def due_in_s(owner: Owner, reader: Reader, thread: ThreadPoolExecutor) -> float:
    """Return when a walker is due again that has looked once."""
    walking = walker(owner, reader, thread)
    walking.tick()
    reader.may_read.set()
    await until(lambda: walking.due_in_s() != 0)
    return walking.due_in_s()


async def test_a_leader_looks_again_when_the_next_message_is_due(
    thread: ThreadPoolExecutor,
) -> None:
    found_s = await due_in_s(Owner(waiting=1), Reader(NOW_MS + 700), thread)

    assert found_s == pytest.approx(0.7)


async def test_a_leader_without_delayed_messages_need_not_look(thread: ThreadPoolExecutor) -> None:
    assert await due_in_s(Owner(waiting=0), Reader(0), thread) == math.inf


async def test_a_leader_looks_at_once_while_it_reads_delayed_messages(
    thread: ThreadPoolExecutor,
) -> None:
    reader = Reader(NOW_MS + 700)
    walking = walker(Owner(waiting=1), reader, thread)
    walking.tick()

    assert walking.due_in_s() == 0
    reader.may_read.set()


async def test_a_leader_that_could_not_read_a_message_looks_again_after_a_pause(
    thread: ThreadPoolExecutor,
) -> None:
    found_s = await due_in_s(Owner(waiting=1), Reader(0), thread)

    assert 0 < found_s <= RETRY_S


@pytest.mark.parametrize(
    "error",
    [StoreError("a rotten block"), IndexError(7), OSError(5, "EIO"), RuntimeError("unexpected")],
    ids=lambda error: type(error).__name__,
)
async def test_a_leader_whose_queues_or_log_cannot_be_read_looks_again_after_a_pause(
    thread: ThreadPoolExecutor, error: Exception
) -> None:
    found_s = await due_in_s(Owner(waiting=1), Reader(0, error), thread)

    assert 0 < found_s <= RETRY_S


async def test_a_leader_that_fails_to_propose_a_message_looks_again_after_a_pause(
    thread: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The level stood still until the next leader."""

    def fail(*_: object) -> None:
        raise RuntimeError("unexpected")

    monkeypatch.setattr(delays, "delivered", fail)
    record = MessageRecord(topic_names.SCHEDULE_TOPIC, LEVEL - 1, 0, 0, b"x")

    found_s = await due_in_s(Owner(waiting=1), Reader(0, records=[record]), thread)

    assert 0 < found_s <= RETRY_S


async def test_a_deposed_leader_need_not_look(thread: ThreadPoolExecutor) -> None:
    owner = Owner(waiting=1)
    reader = Reader(NOW_MS + 700)
    walking = walker(owner, reader, thread)
    walking.tick()
    owner.is_proven = False

    assert walking.due_in_s() == math.inf
    reader.may_read.set()
