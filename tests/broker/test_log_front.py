"""Which message of each queue is the first one in a log whose front was removed."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_broker.queues import log_front
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.log_front import FrontUnknownError, LogFront
from dledger_broker_log.logs import STEPS, Log, Send, Step, TopicDeleted
from dledger_formats.log.disk import EntryHeader
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.state_machine.machine import CommittedEntry


class KeptLog:
    """A model's log, of which the first entries are removed; it reads a few entries at a time."""

    def __init__(self, log: Log, begin_index: int, batch: int = 1) -> None:
        self.begin_index = begin_index
        self.applied_index = len(log.entries) - 1
        self.is_damaged = False
        self.reads = 0
        self._log = log
        self._batch = batch

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
        return self._log.batch(first_index, last + 1), header


def told(front: LogFront, queue: QueueId) -> int | None:
    """Look until the log has shown the first message."""
    while True:
        try:
            return front.first_offset(queue)
        except FrontUnknownError:
            continue


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
    front = LogFront(kept)
    for begin in begins:
        kept.begin_index = min(begin, len(log.entries))
        begin_pos = (
            sum(
                0 if entry is None else len(entry.body) for entry in log.entries[: kept.begin_index]
            )
            + 48 * kept.begin_index
        )
        for (topic, queue_id), units in log.units.items():
            expected = next(
                (at for at, unit in enumerate(units) if unit.physical_offset > begin_pos), None
            )
            assert told(front, QueueId(topic, queue_id)) == expected


def test_what_the_log_has_shown_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log().extend([Send("T", 0), Send("U", 0), Send("U", 1)] * 9)
    kept = KeptLog(log, 9)
    front = LogFront(kept)
    monkeypatch.setattr(log_front, "LOOK_BATCHES", 100)

    assert front.first_offset(QueueId("T", 0)) == 3
    assert kept.reads == 1
    assert front.first_offset(QueueId("U", 1)) == 3
    assert kept.reads == 3
    assert front.first_offset(QueueId("U", 0)) == 3
    assert kept.reads == 3


def test_a_look_is_bounded_and_the_next_one_reads_on() -> None:
    looks = 3
    log = Log().extend([Send("T", 0)] * (looks * log_front.LOOK_BATCHES) + [Send("U", 0)])
    front = LogFront(KeptLog(log, 0))
    for _ in range(looks):
        with pytest.raises(FrontUnknownError):
            front.first_offset(QueueId("U", 0))
    assert front.first_offset(QueueId("U", 0)) == 0


def test_a_damaged_log_shows_nothing_until_it_is_mended() -> None:
    kept = KeptLog(Log().extend([Send("T", 0)]), 0)
    front = LogFront(kept)
    kept.is_damaged = True
    with pytest.raises(FrontUnknownError):
        front.first_offset(QueueId("T", 0))
    kept.is_damaged = False
    assert front.first_offset(QueueId("T", 0)) == 0
