"""Entries to units of consume queues, grouped so that each queue is written once."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from dledger_broker.errors import NotABrokerLogError
from dledger_broker.state.broker_state import Entry
from dledger_formats.json_objects import FormatError
from dledger_formats.rocketmq import consume_queue, message_record, state_records, topic_names
from dledger_formats.rocketmq.consume_queue import UNIT
from dledger_formats.rocketmq.message_record import MessageRecord, MessageRecordError
from dledger_formats.rocketmq.state_records import TopicDeleted

UNITS_MAX: Final = 1 << 48
"""More messages than a queue can ever have; no unit is written beyond."""


class QueueId(NamedTuple):
    """One queue of one topic."""

    topic: str
    queue_id: int


class Run(NamedTuple):
    """Units of consecutive messages of one queue."""

    first_unit: int
    """The queue offset of the first message."""
    units: bytearray


class QueueChanges:
    """What a batch of entries does to the consume queues: first the deletions, then the runs."""

    def __init__(self) -> None:
        self.deleted: dict[str, None] = {}
        """Topics whose files must go."""
        self.runs: dict[QueueId, list[Run]] = {}
        """For each queue its runs, in log order; one, unless the log has gaps."""

    def _add(self, index: int, record: MessageRecord, size: int) -> None:
        queue = QueueId(record.topic, record.queue_id)
        runs = self.runs.get(queue)
        unit = UNIT.pack(record.physical_offset, size, consume_queue.tags_code(record))
        if runs is not None:
            first, units = runs[-1]
            if record.queue_offset == first + len(units) // UNIT.size:
                units += unit
                return
        if not 0 <= record.queue_offset < UNITS_MAX:
            raise NotABrokerLogError(index, f"queue offset {record.queue_offset}")
        if runs is None:
            if record.queue_id < 0 or not topic_names.is_valid(record.topic):
                raise NotABrokerLogError(index, f"queue {queue!r:.150}")
            runs = self.runs[queue] = []
        runs.append(Run(record.queue_offset, bytearray(unit)))

    def _delete(self, topic: str) -> None:
        """Forget what was written before, and have the files deleted."""
        self.deleted[topic] = None
        for queue in [queue for queue in self.runs if queue.topic == topic]:
            del self.runs[queue]


def changes_of(entries: Iterable[Entry]) -> QueueChanges:
    """Return what committed entries, in log order, do to the consume queues.

    Raises NotABrokerLogError for an entry that is no message.
    """
    changes = QueueChanges()
    for entry in entries:
        try:
            record = message_record.decode(entry.body, check_crc=False)
        except MessageRecordError as error:
            raise NotABrokerLogError(entry.index, str(error)) from error
        if consume_queue.is_queued(record):
            changes._add(entry.index, record, len(entry.body))
        if record.topic == topic_names.STATE_TOPIC:
            topic = _deleted_topic(entry.index, record)
            if topic is not None:
                changes._delete(topic)
    return changes


def _deleted_topic(index: int, record: MessageRecord) -> str | None:
    """Return the topic that a state record deletes. A system topic is never deleted."""
    try:
        change = state_records.decode(record.body)
    except FormatError as error:
        raise NotABrokerLogError(index, str(error)) from error
    if isinstance(change, TopicDeleted) and not topic_names.is_system(change.topic):
        return change.topic
    return None
