"""The state machine of a broker.

Its entries are messages (`message_record`), among them state records. Every message moves the next
offset of its queue; a message that was delayed moves the position of its delay level; a state
record makes the change that it describes. A record that asks for the impossible (a topic beyond the
limit, an offset of an unknown group) is a message like any other, and changes nothing else. The
leader asks `refusal` before it writes one.

An entry that is no such message, or a message with another queue offset than the next one, raises
NotABrokerLogError. The machines of `dledger_node` ignore what they do not understand; this one must
not, because it would then differ from members of another version. The state includes the entries
before the bad one.

The numbers of the doors' appends are not part of the state: they are in the entries' channels, and
every node derives its table of producers from those.
"""

from collections.abc import Iterable, Sequence
from typing import BinaryIO, Final, Protocol, Self

from dledger_broker.errors import NotABrokerLogError
from dledger_broker.state import changes, dump
from dledger_broker.state.groups import Queue
from dledger_broker.state.tables import Tables
from dledger_formats.json_objects import FormatError
from dledger_formats.rocketmq import (
    consume_queue,
    delay_levels,
    message_record,
    properties,
    state_records,
    topic_names,
)
from dledger_formats.rocketmq.consumer_groups import Consumer
from dledger_formats.rocketmq.message_record import MessageRecord, MessageRecordError
from dledger_formats.rocketmq.state_records import AnyStateRecord

_SCHEDULED: Final = properties.SCHEDULED.encode()
_SCHEDULED_BYTES_MAX: Final = 32
_STATE_TOPIC: Final = topic_names.STATE_TOPIC.encode()
QUICK_CHANGES_BYTES_MAX: Final = 2048
"""The most bytes of messages with state records that the event loop applies at once."""


class Entry(Protocol):
    """A committed entry with a message: `CommittedEntry` of the node."""

    @property
    def index(self) -> int:
        """Index in the log."""

    @property
    def body(self) -> bytes:
        """The record."""


class BrokerState:
    """The state that the log leads to: a state machine, as `dledger_node` defines them.

    One thread applies entries. Others may call the methods that look up one thing meanwhile.
    """

    def __init__(self) -> None:
        self.tables = Tables()
        """The parts of the state, replaced together when a snapshot is loaded."""

    # -- looking up --------------------------------------------------------------------------------

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next message of a queue gets; 0 for an unknown queue."""
        return self.tables.topics.next_offset(topic, queue_id)

    def created_index(self, topic: str) -> int | None:
        """Return the index of the entry that created a topic; None if there is no such topic."""
        found = self.tables.topics.by_name.get(topic)
        return None if found is None else found.created_index

    def consumer_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return where a group continues in a queue; None if it never committed an offset."""
        return self.tables.offsets.get(group, topic, queue_id)

    def client_ids(self, group: str) -> list[str]:
        """Return the ids of a group's clients, sorted, each once."""
        return sorted(self.tables.groups.clients.get(group, {}))

    def consumer(self, group: str, client_id: str) -> Consumer | None:
        """Return what a client said when it joined a group; None if it does not belong to it."""
        return self.tables.groups.clients.get(group, {}).get(client_id)

    def consumers(self, group: str) -> list[Consumer]:
        """Return what all clients of a group said when they joined it."""
        return list(self.tables.groups.clients.get(group, {}).values())

    def clients_by_group(self) -> dict[str, list[str]]:
        """Return the ids of all clients of each group."""
        groups = self.tables.groups.clients.copy()  # in one step, unlike a list of its items
        return {group: list(members) for group, members in groups.items()}

    def take_changed_groups(self) -> list[str]:
        """Return the groups whose clients changed since the last call. For one caller only."""
        changed, taken = self.tables.groups.changed, []
        while changed:  # the thread that applies may add one meanwhile
            taken.append(changed.popitem()[0])
        return taken

    def holder(self, group: str, topic: str, queue_id: int) -> str | None:
        """Return the client that holds a queue; None if it is free."""
        return self.tables.groups.holders.get(Queue(group, topic, queue_id))

    def delay_position(self, level: int) -> int:
        """Return the queue offset of the first message of a delay level that is not delivered."""
        return self.tables.delay_positions[level - 1]

    def refusal(self, record: AnyStateRecord) -> str | None:
        """Return why a record would change nothing, in words; None if it may change something."""
        return changes.refusal(self.tables, record)

    # -- the state machine -------------------------------------------------------------------------

    def apply(self, entries: Sequence[Entry]) -> None:
        """Apply committed entries, in log order. Raises NotABrokerLogError."""
        for entry in entries:
            try:
                record = message_record.decode(entry.body, check_crc=False)
            except MessageRecordError as error:
                raise NotABrokerLogError(entry.index, str(error)) from error
            self._apply(entry.index, record)

    def is_quick(self, entries: Sequence[Entry]) -> bool:
        """See `StateMachine`.

        Each byte of a state record takes a hundred times as long as one of a message; deleting a
        topic or a group means looking at all offsets and locks.
        """
        changes = [entry.body for entry in entries if _STATE_TOPIC in entry.body]
        if sum(map(len, changes)) > QUICK_CHANGES_BYTES_MAX:
            return False
        return not any(state_records.may_delete(body) for body in changes)

    def copy(self) -> Self:
        """Return a copy that does not change when this state does."""
        other = type(self)()
        other.tables = self.tables.copy()
        return other

    def dump(self) -> Iterable[bytes]:
        """Return the state as bytes, piece by piece."""
        return dump.dump(self.tables)

    def load(self, file: BinaryIO) -> None:
        """Replace the state by a dumped one. Raises ValueError if the bytes are not a dump."""
        self.tables = dump.load(file)

    # -- one message -------------------------------------------------------------------------------

    def _apply(self, index: int, record: MessageRecord) -> None:
        """Apply one message. Raises NotABrokerLogError, and then changes nothing."""
        tables = self.tables
        if record.physical_offset <= tables.last_physical_offset:
            raise NotABrokerLogError(
                index,
                f"its physical offset {record.physical_offset} is not after "
                f"{tables.last_physical_offset}, that of the message before",
            )
        change = None
        if record.topic == topic_names.STATE_TOPIC:
            change = _change_of(index, record)
        if consume_queue.is_queued(record):
            wrong = tables.topics.add_message(
                record.topic, record.queue_id, record.queue_offset, index
            )
            if wrong is not None:
                raise NotABrokerLogError(index, wrong)
        if _SCHEDULED in record.properties:
            self._note_delivery(record.properties)
        if change is not None:
            changes.make(tables, change, index, record.store_timestamp)
        # Last: a thread that waits for a change takes this as its end.
        tables.last_physical_offset = record.physical_offset

    def _note_delivery(self, encoded: bytes) -> None:
        """Move the position of a delay level past the message that was delivered."""
        value = properties.find(encoded, _SCHEDULED) or b""
        level, _, offset = value.partition(b" ")
        if len(value) > _SCHEDULED_BYTES_MAX or not (level.isdigit() and offset.isdigit()):
            return
        queue_id = int(level) - 1
        waiting = self.next_offset(topic_names.SCHEDULE_TOPIC, queue_id)
        if queue_id < delay_levels.LEVEL_MAX and int(offset) < waiting:
            positions = self.tables.delay_positions
            positions[queue_id] = max(positions[queue_id], int(offset) + 1)


def _change_of(index: int, record: MessageRecord) -> AnyStateRecord:
    """Return the change that a message of the state's topic describes."""
    try:
        return state_records.decode(record.body)
    except FormatError as error:
        raise NotABrokerLogError(index, str(error)) from error
