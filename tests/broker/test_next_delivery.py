"""When a leader has to look for delayed messages next."""

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.leading.delay_walker import RETRY_S, DelayWalker
from dledger_broker.queues.reader import Due
from dledger_node.errors import StoreError
from dledger_wire.listener import until

NOW_MS = 1_000_000
LEVEL = 3


class Owner:
    """A leader at a fixed time; one level has messages."""

    def __init__(self, waiting: int) -> None:
        self.is_proven, self.term, self.state = True, 1, self
        self.waiting = waiting

    def wall_ms(self) -> int:
        return NOW_MS

    def delay_position(self, _: int) -> int:
        return 0

    def next_offset(self, _: str, queue_id: int) -> int:
        return self.waiting if queue_id == LEVEL - 1 else 0


class Reader:
    """Finds that no message is due before a time; 0 if it finds none at all."""

    def __init__(self, next_ms: int, error: Exception | None = None) -> None:
        self.next_ms, self.error = next_ms, error
        self.may_read = threading.Event()

    def due(self, *_: object, **__: object) -> Due:
        self.may_read.wait()
        if self.error:
            raise self.error
        return Due([], self.next_ms)


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


@pytest.mark.parametrize("error", [StoreError("a rotten block"), IndexError(7), OSError(5, "EIO")])
async def test_a_leader_whose_queues_or_log_cannot_be_read_looks_again_after_a_pause(
    thread: ThreadPoolExecutor, error: Exception
) -> None:
    found_s = await due_in_s(Owner(waiting=1), Reader(0, error), thread)

    assert 0 < found_s <= RETRY_S


async def test_a_deposed_leader_need_not_look(thread: ThreadPoolExecutor) -> None:
    owner = Owner(waiting=1)
    reader = Reader(NOW_MS + 700)
    walking = walker(owner, reader, thread)
    walking.tick()
    owner.is_proven = False

    assert walking.due_in_s() == math.inf
    reader.may_read.set()
