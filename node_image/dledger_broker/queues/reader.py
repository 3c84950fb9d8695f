"""Messages of a queue, by their queue offsets. All methods block, and may run in any thread.

A unit says where a message should be. Only the entry there says whether it is: its checksum, and
the record's own topic, queue, offset and position.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.log_front import FrontUnknownError, LogFront
from dledger_broker.queues.queue_store import QueueStore
from dledger_formats.log import disk
from dledger_formats.log.disk import ENTRY_HEADER_SIZE, DamagedRecordError, EntryHeader
from dledger_formats.rocketmq import consume_queue, message_record
from dledger_formats.rocketmq.consume_queue import Unit
from dledger_formats.rocketmq.message_record import MessageRecord, MessageRecordError

_SIZE_BYTES: Final = 4
SCAN_UNITS: Final = 800
"""Units that one pull looks at, if it wants few of the messages: Java's 16,000 bytes."""
SCAN_BYTES: Final = 1 << 20
"""Bytes of records that it reads then, after the first one."""


class UnitRefusedError(Exception):
    """A unit contradicts the log, or is missing; the queues must be built again."""


class UnreadableError(Exception):
    """The log cannot be read there now: it is damaged, and the member mends it."""


class NotBuiltError(UnreadableError):
    """The queue lacks its newest units, which will come."""


class UnprovedError(UnreadableError):
    """The log has not shown yet whether the message is removed; it is asked again."""


class DeletedError(UnreadableError):
    """The message belongs to a topic that was deleted; there may be another of the same name."""


class Found(NamedTuple):
    """What a pull has found."""

    next_offset: int
    """Behind the last unit that was looked at."""
    records: list[bytes]
    is_complete: bool
    """Whether the queue had all units that it should have had."""


class Due(NamedTuple):
    """Delayed messages whose time has come."""

    records: list[MessageRecord]
    next_ms: int
    """Nothing more is due before this time; 0 if something may be."""


class MessageReader:
    """Reads messages of one member's queues and log."""

    def __init__(
        self,
        store: QueueStore,
        stored_at: Callable[[int, int], bytes],
        begin_pos: Callable[[], int],
        created_index: Callable[[str], int | None],
        begin_index: Callable[[], int],
        front: LogFront,
    ) -> None:
        """`stored_at` reads bytes of the log, `begin_pos` is where its first entry begins,
        `begin_index` is the index of that entry, and `created_index` is the index of the entry that
        created a topic; None if there is none.
        """
        self._store = store
        self._begin_index = begin_index
        self._front = front
        self._created_index = created_index
        self._stored_at = stored_at
        self._begin_pos = begin_pos

    def pull(
        self,
        queue: QueueId,
        offset: int,
        end_offset: int,
        *,
        messages_max: int,
        bytes_max: int,
        codes: frozenset[int] | None,
    ) -> Found:
        """Return messages from `offset` on, which must be below `end_offset`, at least one if there
        is one with such a tag among those that it looks at. A message with another tag is read,
        too: its unit might hide it. Raises UnitRefusedError and UnreadableError.
        """
        count = min(end_offset - offset, max(SCAN_UNITS, messages_max))
        units = self._store.units(queue.topic, queue.queue_id, offset, count)
        records: list[bytes] = []
        size, passed_bytes, at = 0, 0, offset
        for unit in units:
            if codes is None or unit.tags_code in codes:
                if records and (len(records) >= messages_max or size + unit.size > bytes_max):
                    break
                records.append(self._tagged(queue, at, unit, is_compared=codes is not None))
                size += unit.size
            else:
                if at > offset and passed_bytes + unit.size > SCAN_BYTES:
                    break
                self._tagged(queue, at, unit, is_compared=True)
                passed_bytes += unit.size
            at += 1
        return Found(at, records, bool(units))

    def _tagged(self, queue: QueueId, offset: int, unit: Unit, *, is_compared: bool) -> bytes:
        """Return a record, whose tags may have to be those that its unit names."""
        raw, record = self._record(queue, offset, unit)
        if is_compared and unit.tags_code != consume_queue.tags_code(record):
            raise UnitRefusedError(f"unit {offset} of {queue} names other tags: {unit.tags_code}")
        return raw

    def due(
        self,
        queue: QueueId,
        offset: int,
        end_offset: int,
        now_ms: int,
        *,
        has_all: bool,
        messages_max: int,
        bytes_max: int,
    ) -> Due:
        """Return the delayed messages from `offset` on that are due, as far as the queue has them.

        With `has_all` it has all of them, unless the log no longer has the first ones; those are
        left out. Raises UnitRefusedError and UnreadableError.
        """
        offset, units = self._kept_units(
            queue, offset, end_offset, has_all=has_all, count=messages_max
        )
        records: list[MessageRecord] = []
        size = 0
        for at, unit in enumerate(units, offset):
            if records and (unit.tags_code > now_ms or size + unit.size > bytes_max):
                break  # the next call looks at this one
            record = self._record(queue, at, unit)[1]
            if unit.tags_code != consume_queue.tags_code(record):  # it might never be due
                raise UnitRefusedError(f"unit {at} of {queue} names the time {unit.tags_code}")
            if unit.tags_code > now_ms:
                return Due(records, unit.tags_code)
            records.append(record)
            size += unit.size
        return Due(records, 0)

    def index_of(
        self, queue: QueueId, offset: int, end_offset: int, *, has_all: bool
    ) -> int | None:
        """Return the log index of the first message from `offset` on that the log still has; None
        if it has none. With `has_all` the queue has all messages.

        Raises UnitRefusedError and UnreadableError.
        """
        offset, units = self._kept_units(queue, offset, end_offset, has_all=has_all, count=1)
        if units:
            return self._entry(queue, offset, units[0])[0].index
        if offset >= end_offset:
            return None
        raise NotBuiltError(f"unit {offset} of {queue} is not built yet")

    def _kept_units(
        self, queue: QueueId, offset: int, end_offset: int, *, has_all: bool, count: int
    ) -> tuple[int, list[Unit]]:
        """Return units from `offset` on, and the offset of the first. Units of messages that the
        log no longer has are left out if the queue has all others.
        """

        def units_from(first: int) -> list[Unit]:
            wanted = min(end_offset - first, count)
            return self._store.units(queue.topic, queue.queue_id, first, wanted)

        units = units_from(offset)
        if has_all and (not units or units[0].physical_offset < self._begin_pos()):
            first = self.kept_offset(queue, end_offset, has_all=True)
            if first <= offset and not units:
                raise UnitRefusedError(f"{queue} has no unit {offset}")
            offset = max(offset, first)
            units = units_from(offset) if offset < end_offset else []
        return offset, units

    def at(self, physical_offset: int) -> MessageRecord:
        """Return the message at a physical offset. Raises UnreadableError if there is none."""
        return message_record.decode(self.raw_at(physical_offset), check_crc=False)

    def raw_at(self, physical_offset: int) -> bytes:
        """Return the record at a physical offset. Raises UnreadableError if there is none."""
        pos = physical_offset - ENTRY_HEADER_SIZE
        try:
            if pos < 0:
                raise LookupError("it is below the first")
            size = int.from_bytes(self._stored_at(physical_offset, _SIZE_BYTES), "big")
            if not 0 < size <= message_record.RECORD_BYTES_MAX:
                raise LookupError("there is another entry")
            raw = self._stored_at(pos, ENTRY_HEADER_SIZE + size)
            header = disk.check_entry(raw, 0, len(raw))
            found = raw[ENTRY_HEADER_SIZE:]
            record = message_record.decode(found)
        except (LookupError, DamagedRecordError, MessageRecordError) as error:
            raise UnreadableError(
                f"there is no message at offset {physical_offset}: {error}"
            ) from error
        if header.pos != pos or record.physical_offset != physical_offset:
            raise UnreadableError(f"there is no message at offset {physical_offset}")
        return found

    def kept_offset(self, queue: QueueId, end_offset: int, *, has_all: bool) -> int:
        """Return the offset of the first message that the log still has; the end if none is. The
        log itself has shown that it has none before.

        Raises UnitRefusedError if the units say otherwise, UnprovedError if the log must be read
        further, and as `min_offset` does.
        """
        first = self.min_offset(queue, end_offset, has_all=has_all)
        if first == 0:
            return 0
        return max(first, self._proved(queue, first, end_offset, has_all=has_all))

    def is_proof_wanted(self, queue: QueueId) -> bool:
        """Tell whether the log is still read for the first message of a queue."""
        return self._front.is_wanted(queue)

    def _proved(self, queue: QueueId, first: int, end_offset: int, *, has_all: bool) -> int:
        """Return the first offset that the log has, which must not be below `first`."""
        created_index = self._created_index(queue.topic)
        if created_index is None:
            raise DeletedError(f"{queue.topic} was deleted")
        try:
            is_whole = created_index >= self._begin_index()
            found = 0 if is_whole else self._front.first_offset(queue)
        except FrontUnknownError as error:
            raise UnprovedError(str(error)) from error
        if found is None and not has_all:
            raise NotBuiltError(f"a message of {queue} may be being applied")
        kept = end_offset if found is None else found
        if kept < first:
            raise UnitRefusedError(f"{queue} has message {kept}, but no unit before {first}")
        return kept

    def min_offset(self, queue: QueueId, end_offset: int, *, has_all: bool) -> int:
        """Return the offset of the first message that the log still has; the end if none is. This
        is what the units say, which may be damaged (`kept_offset`).

        Only a queue that has all messages, as `has_all` says, can show that none is. Raises
        NotBuiltError if it may be that the first one is not built yet.
        """
        begin_pos = self._begin_pos()
        if begin_pos == 0:
            return 0

        def is_there(offset: int) -> bool:
            units = self._store.units(queue.topic, queue.queue_id, offset, 1)
            return bool(units) and units[0].physical_offset >= begin_pos

        first = _first(end_offset, is_there)
        if first == end_offset and end_offset > 0 and not has_all:
            raise NotBuiltError(f"{queue} has no unit of a message that is kept yet")
        return first

    def first_stored_at(self, queue: QueueId, timestamp_ms: int, first: int, end: int) -> int:
        """Return the offset of the first message that was stored at this time or later, from
        `first` up to `end`; `end` if there is none. Raises as `pull` does.
        """
        return first + _first(
            end - first, lambda at: self.timestamp(queue, first + at) >= timestamp_ms
        )

    def timestamp(self, queue: QueueId, offset: int) -> int:
        """Return when a message was stored, in ms. Raises as `pull` does."""
        units = self._store.units(queue.topic, queue.queue_id, offset, 1)
        if not units:
            raise UnitRefusedError(f"{queue} has no unit {offset}")
        return self._record(queue, offset, units[0])[1].store_timestamp

    def _record(self, queue: QueueId, offset: int, unit: Unit) -> tuple[bytes, MessageRecord]:
        return self._entry(queue, offset, unit)[1:]

    def _entry(
        self, queue: QueueId, offset: int, unit: Unit
    ) -> tuple[EntryHeader, bytes, MessageRecord]:
        pos = unit.physical_offset - ENTRY_HEADER_SIZE
        if not 0 < unit.size <= message_record.RECORD_BYTES_MAX:
            raise UnitRefusedError(f"unit {offset} of {queue} names {unit.size} bytes")
        try:
            raw = self._stored_at(pos, ENTRY_HEADER_SIZE + unit.size)
        except LookupError as error:
            if pos < self._begin_pos():
                # It has a unit, so it was applied: a log that shows no message has removed it.
                self._proved(queue, offset + 1, offset + 1, has_all=True)
                raise UnreadableError(f"message {offset} of {queue} was removed") from error
            raise UnitRefusedError(f"unit {offset} of {queue}: {error}") from error
        try:
            header = disk.check_entry(raw, 0, len(raw))
        except DamagedRecordError as error:
            if error.reason == "bad_body_crc":
                raise UnreadableError(f"message {offset} of {queue}: {error}") from error
            raise UnitRefusedError(f"unit {offset} of {queue}: {error}") from error
        try:
            record = message_record.decode(raw[ENTRY_HEADER_SIZE:], check_crc=False)
        except MessageRecordError as error:
            raise UnitRefusedError(f"unit {offset} of {queue}: {error}") from error
        found = record.topic, record.queue_id, record.queue_offset, record.physical_offset
        if header.pos != pos or found != (*queue, offset, unit.physical_offset):
            raise UnitRefusedError(f"unit {offset} of {queue} names the message {found}")
        created_index = self._created_index(queue.topic)
        if created_index is None or header.index < created_index:
            raise DeletedError(f"message {offset} of {queue} was deleted with its topic")
        return header, raw[ENTRY_HEADER_SIZE:], record


def _first(count: int, is_there: Callable[[int], bool]) -> int:
    """Return the first number below `count` for which something holds; it holds for all after."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if is_there(middle):
            high = middle
        else:
            low = middle + 1
    return low
