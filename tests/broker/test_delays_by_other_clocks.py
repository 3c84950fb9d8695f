"""A leader delivers what leaders with other clocks have stored after its delay at the latest."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.leading.delay_walker import DelayWalker
from dledger_broker.leading.record_draft import RecordDraft
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.reader import Due
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_formats.rocketmq.topic_names import SCHEDULE_TOPIC
from dledger_node.services.drafts import Outcome

LEVEL, DELAY_MS = 2, 5000
HOUR_MS = 3_600_000
NOW_MS = 10 * HOUR_MS


class Leader:
    """A leader with one level of delayed messages. What it proposes is applied at once."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self.is_proven, self.term, self.now_ms = True, 1, NOW_MS
        self.state = self.tables = self.topics = self
        self.due_ms: list[int] = []
        """When each message is due, as it says."""
        self.delivered_ms: list[int] = []
        parts: Any = (self, SimpleNamespace(has_all=True, rebuilds=0), self)
        self._walker = DelayWalker(*parts, thread, lambda: bytes(8))

    def wall_ms(self) -> int:
        return self.now_ms

    def delay_position(self, level: int) -> int:
        return len(self.delivered_ms) if level == LEVEL else 0

    def next_offset(self, _: str, queue_id: int) -> int:
        return len(self.due_ms) if queue_id == LEVEL - 1 else 0

    def has_queue(self, *_: object) -> bool:
        return True

    def due(
        self, queue: QueueId, first: int, end: int, now_ms: int, *, waited_end: int, **_: object
    ) -> Due:
        """Do what `MessageReader` does."""
        records: list[MessageRecord] = []
        for offset in range(first, end):
            if self.due_ms[offset] > now_ms and offset >= waited_end:
                return Due(records, 0 if records else self.due_ms[offset])
            records.append(MessageRecord(SCHEDULE_TOPIC, queue.queue_id, offset, 0, b"x"))
        return Due(records, 0)

    def propose(self, draft: RecordDraft) -> None:
        self.delivered_ms += [self.now_ms] * len(draft.bodies)
        draft.ended(draft, Outcome.COMMITTED)

    def store(self, ahead_ms: int = 0) -> None:
        """Store a message by a clock that is so far ahead."""
        self.due_ms.append(self.now_ms + ahead_ms + DELAY_MS)

    async def wait(self, wait_ms: int) -> None:
        """Let time pass, and the leader look ten times a second."""
        for _ in range(wait_ms // 100):
            self.now_ms += 100
            await self.look()

    async def look(self) -> None:
        self._walker.tick()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


async def test_a_message_that_a_leader_ahead_has_stored_holds_up_no_later_one(
    thread: ThreadPoolExecutor,
) -> None:
    leader = Leader(thread)
    for _ in range(3):
        leader.store(HOUR_MS)
    await leader.look()
    await leader.wait(1000)
    leader.store()

    await leader.wait(3900)
    assert leader.delivered_ms == [], "none is early"
    await leader.wait(2000)
    assert leader.delivered_ms == [NOW_MS + 5000] * 3 + [NOW_MS + 6000]


async def test_a_message_of_a_leader_that_was_a_little_ahead_is_not_early(
    thread: ThreadPoolExecutor,
) -> None:
    leader = Leader(thread)
    leader.store(200)
    await leader.wait(10_000)

    assert leader.delivered_ms == [NOW_MS + 100 + DELAY_MS], "counted from the first look on"


async def test_messages_come_after_their_delay_although_the_clock_was_set_back(
    thread: ThreadPoolExecutor,
) -> None:
    leader = Leader(thread)
    leader.store()
    await leader.look()
    leader.now_ms -= HOUR_MS
    leader.store()
    await leader.wait(DELAY_MS + 200)

    assert [at - NOW_MS + HOUR_MS for at in leader.delivered_ms] == [5100, 5100]


async def test_each_message_waits_for_its_delay_while_more_and_more_come(
    thread: ThreadPoolExecutor,
) -> None:
    leader = Leader(thread)
    for _ in range(100):
        leader.store()
        await leader.wait(300)
    await leader.wait(DELAY_MS)

    late_ms = {at - due for at, due in zip(leader.delivered_ms, leader.due_ms, strict=True)}
    assert late_ms == {0}
