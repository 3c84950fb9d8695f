"""The committed log of brokers as an outsider reads it: messages, their queues and offsets.

This module uses only the formats, and no code of the broker.
"""

from collections import defaultdict
from typing import Final, NamedTuple

from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.rocketmq import (
    consume_queue,
    delay_levels,
    message_record,
    state_records,
    topic_names,
)
from dledger_formats.rocketmq import properties as message_properties
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_formats.rocketmq.state_records import TopicDeleted
from dledger_sim.broker.bodies import Bodies
from dledger_sim.group.conditions import SKEW_MS_MAX
from dledger_sim.group.disk import Entry
from dledger_sim.judges.violation import ViolationError

_SCHEDULED: Final = message_properties.SCHEDULED.encode()


class Place(NamedTuple):
    """A queue of a topic."""

    topic: str
    queue_id: int


class Message(NamedTuple):
    """A committed message."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed here
    key: bytes
    """The client's body, which no two messages of clients share; with the number of its return, if
    a consumer has returned it.
    """
    raw: bytes
    record: MessageRecord
    term: int
    """The term of its entry: one leader stored all entries of a term, by one clock."""


class Deleted(NamedTuple):
    """The content of a queue before its topic was deleted."""

    index: int  # type: ignore[assignment]  # as in `Message`
    """The index of the entry that deleted it."""
    messages: list[Message]


def key_of(record: MessageRecord) -> bytes:
    """Return the key that distinguishes a client's message from others, even if returned."""
    times = record.reconsume_times
    return record.body + b" returned %d" % times if times else bytes(record.body)


class BrokerLog:
    """The messages of the growing committed log."""

    def __init__(self, bodies: Bodies) -> None:
        self.queues: defaultdict[Place, list[Message]] = defaultdict(list)
        """The messages of each queue, by their queue offsets."""
        self.stored: dict[tuple[bytes, bool], Message] = {}
        """The messages by body, and whether each waits for its delivery."""
        self.deleted: defaultdict[Place, list[Deleted]] = defaultdict(list)
        """The content of each queue before each deletion of its topic."""
        self.deleted_at: defaultdict[str, list[int]] = defaultdict(list)
        """The indexes of the entries that deleted each topic."""
        self.delayed_count = 0
        self._bodies = bodies
        self._count = 0

    def take(self, committed: list[Entry]) -> None:
        """Take the new entries of the committed log. Raises ViolationError."""
        for index in range(self._count, len(committed)):
            stored = self._bodies.stored(committed[index])
            if committed[index].body >= 0:
                placed = self._bodies.placed(committed, index)
                record = message_record.decode(stored.body)
                if record.physical_offset != placed.pos + ENTRY_HEADER_SIZE:
                    raise ViolationError(
                        "a message names its own position",
                        f"entry {index} at {placed.pos} says {record.physical_offset}",
                    )
                self._add(
                    Message(index, key_of(record), stored.body, record, committed[index].term)
                )
        self._count = len(committed)

    def all_delivered(self) -> bool:
        """Return whether every delayed message is delivered."""
        return all((key, False) in self.stored for key, waits in self.stored if waits)

    def _add(self, message: Message) -> None:
        record = message.record
        if not consume_queue.is_queued(record):
            return
        queue = self.queues[Place(record.topic, record.queue_id)]
        if record.queue_offset != len(queue):
            raise ViolationError(
                "queue offsets are in log order, and each is given out once",
                f"entry {message.index} has offset {record.queue_offset} of {record.topic}/"
                f"{record.queue_id}, where {len(queue)} is next",
            )
        queue.append(message)
        if record.topic != topic_names.STATE_TOPIC:
            self._add_of_client(message)
            return
        change = state_records.decode(record.body)
        if isinstance(change, TopicDeleted):
            self._delete(change.topic, message.index)

    def _delete(self, topic: str, index: int) -> None:
        """Delete a topic; one of the same name begins empty."""
        self.deleted_at[topic].append(index)
        for place in [place for place in self.queues if place.topic == topic]:
            self.deleted[place].append(Deleted(index, self.queues.pop(place)))

    def queue(self, place: Place) -> list[Message]:
        """Return the messages of a queue, without creating one for a missing topic."""
        return self.queues.get(place, [])

    def readable(self, place: Place, after_index: int) -> list[list[Message]]:
        """Return the messages of a queue, now and before each deletion after an entry."""
        before = [each.messages for each in self.deleted[place] if each.index > after_index]
        return [self.queue(place), *before]

    def _add_of_client(self, message: Message) -> None:
        waits = message.record.topic == topic_names.SCHEDULE_TOPIC
        is_delivery = message_properties.find(message.record.properties, _SCHEDULED) is not None
        if (message.key, waits) in self.stored:
            rule = "a delayed message is delivered once" if is_delivery else "a send is stored once"
            raise ViolationError(rule, f"{message.key!r} is in entry {message.index}, too")
        if is_delivery:
            self._check_delivery(message)
        self.delayed_count += waits
        self.stored[message.key, waits] = message

    def _check_delivery(self, message: Message) -> None:
        """Check that a delayed message was stored before, and is delivered no sooner than due.

        If another leader stored it, the delivery may be early by the difference of their clocks.
        """
        waiting = self.stored.get((message.key, True))
        if waiting is None:
            raise ViolationError(
                "a delayed message is delivered once", f"{message.key!r} was never stored"
            )
        level = waiting.record.queue_id + 1
        due_ms = delay_levels.delivery_timestamp_ms(level, waiting.record.store_timestamp)
        differ_ms = 0 if message.term == waiting.term else 2 * SKEW_MS_MAX
        if message.record.store_timestamp < due_ms - differ_ms:
            raise ViolationError(
                "a delayed message is delivered no sooner than it is due",
                f"{message.key!r} at {message.record.store_timestamp}, due {due_ms}",
            )
