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
SHORT_PROPERTIES_BYTES: Final = 256
QUICK_PROPERTIES_BYTES_MAX: Final = 4096
"""The most bytes of longer properties in a batch that the event loop builds: tags may fill them,
and a byte of tags takes 0.1 µs.
"""


class QueueId(NamedTuple):
    """One queue of one topic."""

    topic: str
    queue_id: int


class Run(NamedTuple):
    """Units of consecutive messages of one queue."""

    first_unit: int
    """The queue offset of the first message."""
    units: bytearray

    @property
    def next_unit(self) -> int:
        """The queue offset of the message after the last one."""
        return self.first_unit + len(self.units) // UNIT.size

    def copy(self) -> "Run":
        """Return a copy that does not change when this run does."""
        return Run(self.first_unit, self.units[:])


class QueueChanges:
    """What a batch of entries does to the consume queues: first the deletions, then the runs."""

    def __init__(self) -> None:
        self.deleted: dict[str, None] = {}
        """Topics whose files must go."""
        self.runs: dict[QueueId, list[Run]] = {}
        """The runs of each queue, in log order; one each, unless the log has gaps."""

    def _add(self, entry: Entry, record: MessageRecord) -> None:
        if not consume_queue.is_queued(record):
            return
        index, size = entry.index, len(entry.body)
        queue = QueueId(record.topic, record.queue_id)
        runs = self.runs.get(queue)
        unit = UNIT.pack(record.physical_offset, size, consume_queue.tags_code(record))
        if runs is not None:
            last = runs[-1]
            if record.queue_offset == last.next_unit:
                last.units.extend(unit)
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
        record = _record_of(entry)
        changes._add(entry, record)
        if record.topic == topic_names.STATE_TOPIC and state_records.may_delete(record.body):
            topic = _deleted_topic(entry.index, record)
            if topic is not None:
                changes._delete(topic)
    return changes


def quick_changes_of(entries: Iterable[Entry]) -> QueueChanges | None:
    """Return what a few entries do to the queues; None if that may take several ms, or files must
    change.

    Raises NotABrokerLogError.
    """
    changes, long_bytes = QueueChanges(), 0
    for entry in entries:
        record = _record_of(entry)
        if len(record.properties) > SHORT_PROPERTIES_BYTES:
            long_bytes += len(record.properties)
        is_change = record.topic == topic_names.STATE_TOPIC
        if long_bytes > QUICK_PROPERTIES_BYTES_MAX:
            return None
        if is_change and state_records.may_delete(record.body):
            return None
        changes._add(entry, record)
    return changes


def _record_of(entry: Entry) -> MessageRecord:
    try:
        return message_record.decode(entry.body, check_crc=False)
    except MessageRecordError as error:
        raise NotABrokerLogError(entry.index, str(error)) from error


def _deleted_topic(index: int, record: MessageRecord) -> str | None:
    """Return the topic that a state record deletes. A system topic is never deleted."""
    try:
        change = state_records.decode(record.body)
    except FormatError as error:
        raise NotABrokerLogError(index, str(error)) from error
    if isinstance(change, TopicDeleted) and not topic_names.is_system(change.topic):
        return change.topic
    return None
