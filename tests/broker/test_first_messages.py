"""Which message of each queue is the first one in a log whose front was removed."""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.first_messages import FirstMessages, FrontUnknownError
from dledger_broker.queues.first_messages_reading import FirstMessagesReading
from dledger_broker_log.logs import STEPS, Log, Send, Step, TopicDeleted
from dledger_formats.log.disk import ENTRY_HEADER_SIZE, EntryHeader
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.state_machine.machine import CommittedEntry


class KeptLog:
    """A model's log, of which the first entries are removed; it reads a few entries at a time."""

    reads_per_removal = 1 << 30
    """After so many reads the first entry is removed."""

    def __init__(self, log: Log, begin_index: int, batch: int = 1) -> None:
        self.begin_index = begin_index
        self.applied_index = len(log.entries) - 1
        self.is_damaged = False
        self.reads = 0
        self._log = log
        self._batch = batch

    @property
    def begin_pos(self) -> int:
        bodies = [len(entry.body) for entry in self._log.batch(0, self.begin_index)]
        return ENTRY_HEADER_SIZE * self.begin_index + sum(bodies)

    def read(
        self, first_index: int, last_index: int
    ) -> tuple[Sequence[CommittedEntry], EntryHeader]:
        self.reads += 1
        if first_index < self.begin_index:
            raise IndexError(first_index)
        if self.is_damaged:
            raise StoreDamagedError("damaged", Damage.BAD_ENTRY)
        last = min(last_index, first_index + self._batch - 1)
        header: Any = type("Header", (), {"index": last})()
        self.begin_index += self.reads % self.reads_per_removal == 0
        return self._log.batch(first_index, last + 1), header


def told(front: FirstMessages, queue: QueueId) -> int | None:
    """Look until the log has shown the first message."""
    while True:
        try:
            return front.first_offset(queue)
        except FrontUnknownError:
            front.read_on()


@given(
    steps=STEPS.map(lambda steps: [step for step in steps if not isinstance(step, TopicDeleted)]),
    begins=st.lists(st.integers(0, 40), max_size=3).map(sorted),
    batch=st.integers(1, 7),
)
def test_the_first_messages_are_those_that_the_log_has(
    steps: list[Step], begins: list[int], batch: int
) -> None:
    log = Log().extend(steps)
    kept = KeptLog(log, 0, batch)
    front = FirstMessages(kept)
    for begin in begins:
        kept.begin_index = min(begin, len(log.entries))
        for (topic, queue_id), units in log.units.items():
            expected = next(
                (at for at, unit in enumerate(units) if unit.physical_offset > kept.begin_pos), None
            )
            assert told(front, QueueId(topic, queue_id)) == expected


def test_what_the_log_has_shown_is_not_read_again() -> None:
    log = Log().extend([Send("T", 0), Send("U", 0), Send("U", 1)] * 9)
    kept = KeptLog(log, 9)
    front = FirstMessages(kept)

    assert told(front, QueueId("T", 0)) == 3
    assert kept.reads == 1
    assert told(front, QueueId("U", 1)) == 3
    assert kept.reads == 3
    assert told(front, QueueId("U", 0)) == 3
    assert kept.reads == 3


def test_who_asks_reads_one_batch_and_the_rest_is_read_elsewhere() -> None:
    kept = KeptLog(Log().extend([Send("T", 0)] * 3 + [Send("U", 0)]), 0)
    front, queue = FirstMessages(kept), QueueId("U", 0)
    for _ in range(3):
        with pytest.raises(FrontUnknownError):
            front.first_offset(queue)
    assert kept.reads == 1
    assert front.is_wanted(queue)

    assert [front.read_on() for _ in range(3)] == [[], [], [queue]]
    assert not front.is_anything_wanted
    assert front.first_offset(queue) == 0
    assert kept.reads == 4


@pytest.mark.parametrize("is_there", [True, False])
def test_a_front_that_keeps_moving_does_not_keep_a_quiet_queue_from_being_told(
    is_there: bool,
) -> None:
    kept = KeptLog(Log().extend([Send("T", 0)] * 100 + [Send("U", 0)] * is_there), 1, 2)
    kept.reads_per_removal = 3
    front = FirstMessages(kept)
    for _ in range(200):
        with contextlib.suppress(FrontUnknownError):
            front.first_offset(QueueId("T", 0))
        try:
            found = front.first_offset(QueueId("U", 0))
            break
        except FrontUnknownError:
            front.read_on()

    assert found == (0 if is_there else None)
    assert kept.begin_index < 50


def test_only_queues_that_lost_their_first_message_are_looked_for_again() -> None:
    kept = KeptLog(Log().extend([Send("T", 0)] * 20 + [Send("U", 0)]), 1)
    front = FirstMessages(kept)
    assert told(front, QueueId("U", 0)) == 0
    reads, kept.begin_index = kept.reads, 2

    assert told(front, QueueId("U", 0)) == 0
    assert kept.reads == reads
    assert told(front, QueueId("T", 0)) == 2
    assert kept.reads == reads + 1


def test_a_damaged_log_shows_nothing_until_it_is_mended() -> None:
    kept = KeptLog(Log().extend([Send("T", 0)]), 0)
    front = FirstMessages(kept)
    kept.is_damaged = True
    with pytest.raises(FrontUnknownError):
        front.first_offset(QueueId("T", 0))
    with pytest.raises(StoreDamagedError):
        front.read_on()
    kept.is_damaged = False
    front.read_on()
    assert front.first_offset(QueueId("T", 0)) == 0


async def test_a_log_that_cannot_be_read_is_tried_again_after_a_pause() -> None:
    queue = QueueId("U", 0)
    kept = KeptLog(Log().extend([Send("T", 0)] * 3 + [Send("U", 0)]), 0)
    kept.is_damaged = True
    front = FirstMessages(kept)
    shown: list[QueueId] = []
    all_shown = asyncio.Event()

    def take(queues: Iterable[QueueId]) -> None:
        shown.extend(queues)
        all_shown.set()

    with pytest.raises(FrontUnknownError):
        front.first_offset(queue)
    reading = FirstMessagesReading(front, shown=take, failed=pytest.fail)
    async with asyncio.timeout(10):
        while kept.reads < 2:
            reading.tick()
            await asyncio.sleep(0)
    for _ in range(100):
        reading.tick()
        await asyncio.sleep(0)
    assert kept.reads == 2
    kept.is_damaged = False
    async with asyncio.timeout(10):
        while not all_shown.is_set():
            reading.tick()
            await asyncio.sleep(0.01)
    await reading.close()

    assert shown == [queue]
    assert front.first_offset(queue) == 0
