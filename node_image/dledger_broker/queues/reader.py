"""Messages of a queue, by their queue offsets. All methods block, and may run in any thread.

The reader of `cached_reads` is an exception: it is for the event loop, and `pull_sound` only.

A unit says where a message should be. Only the entry there shows whether it is, by its checksum,
and by the record's own topic, queue, offset and position.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.entry_runs import EntryRuns, StoredAt
from dledger_broker.queues.errors import (
    DeletedError,
    NotBuiltError,
    UnitRefusedError,
    UnreadableError,
)
from dledger_broker.queues.kept_messages import Front, KeptMessages, Units, first_number
from dledger_broker.queues.sound_entries import sound_records
from dledger_formats.log import disk
from dledger_formats.log.disk import ENTRY_HEADER_SIZE, DamagedRecordError, EntryHeader
from dledger_formats.rocketmq import consume_queue, message_record
from dledger_formats.rocketmq.consume_queue import Unit
from dledger_formats.rocketmq.message_record import MessageRecord, MessageRecordError

_SIZE_BYTES: Final = 4
SCAN_UNITS: Final = 800
"""Units that one pull looks at, if it wants few of the messages: Java's 16,000 bytes."""
SCAN_BYTES: Final = 1 << 20
"""Bytes of records that such a pull reads, after the first one."""
UNITS_AT_ONCE: Final = 100
"""Units that are read at once. A pull may find enough messages among them."""


class Found(NamedTuple):
    """What a pull has found."""

    next_offset: int
    """The offset after the last unit that was looked at."""
    records: list[bytes]
    is_complete: bool
    """Whether the queue had all units that it should have had."""


class Wanted(NamedTuple):
    """What a pull wants."""

    codes: frozenset[int] | None
    """The codes of the tags; None for all messages."""
    messages_max: int
    bytes_max: int

    def cut(self, units: list[Unit], found_count: int) -> list[Unit]:
        """Return the units up to the last one that is wanted if `found_count` were found before."""
        codes, left = self.codes, self.messages_max - found_count
        if codes is None:
            return units[:left]
        numbers = [number for number, unit in enumerate(units) if unit[2] in codes]
        return units if len(numbers) < left else units[: numbers[left - 1] + 1]

    def of(self, records: list[bytes], units: list[Unit]) -> list[bytes]:
        """Return those of the first units' records that are wanted."""
        codes = self.codes
        if codes is None:
            return records
        return [raw for raw, unit in zip(records, units, strict=False) if unit[2] in codes]


class Due(NamedTuple):
    """Delayed messages whose time has come."""

    records: list[MessageRecord]
    next_ms: int
    """The time before which nothing more is due; 0 if more may be due."""


class MessageReader:
    """Reads messages of one member's queues and log."""

    def __init__(
        self,
        store: Units,
        stored_at: StoredAt,
        begin_pos: Callable[[], int],
        created_index: Callable[[str], int | None],
        begin_index: Callable[[], int],
        front: Front,
        *,
        scan_units: int = SCAN_UNITS,
        limit: Callable[[Sequence[Unit]], None] = lambda _: None,
    ) -> None:
        """`stored_at` reads bytes of the log, `begin_pos` is where its first entry begins,
        `begin_index` is the index of that entry, and `created_index` is the index of the entry that
        created a topic; None if there is none. `scan_units` are looked at for few messages. `limit`
        raises UnreadableError for units of messages that are too long to be read together.
        """
        self._scan_units = scan_units
        self._limit = limit
        self._store = store
        self._created_index = created_index
        self._stored_at = stored_at
        self._begin_pos = begin_pos
        self.kept = KeptMessages(store, begin_pos, created_index, begin_index, front)

    def pull(self, queue: QueueId, offset: int, end_offset: int, wanted: Wanted) -> Found:
        """Return messages from `offset` on, which must be below `end_offset`.

        At least one is returned if any of those that are looked at has a wanted tag. A message with
        another tag is read, too: its unit might hide it. Raises UnitRefusedError and
        UnreadableError.
        """
        codes, messages_max, bytes_max = wanted
        found = self.pull_sound(queue, offset, end_offset, wanted)
        if found is not None:
            return found
        count = min(end_offset - offset, self._looked_at_max(wanted))
        records: list[bytes] = []
        at, size, passed_bytes = offset, 0, 0
        for runs, number in self._looked_at(queue, offset, count):
            unit = runs.units[number]
            is_wanted = codes is None or unit.tags_code in codes
            if is_wanted:
                if records and (len(records) >= messages_max or size + unit.size > bytes_max):
                    break
                size += unit.size
            else:
                if at > offset and passed_bytes + unit.size > SCAN_BYTES:
                    break
                passed_bytes += unit.size
            try:
                _, raw, record = self._entry(queue, at, runs, number)
            except UnreadableError:
                if at == offset:
                    raise
                break  # what comes before it can be read
            if codes is not None and unit.tags_code != consume_queue.tags_code(record):
                raise UnitRefusedError(f"unit {at} of {queue} names other tags: {unit.tags_code}")
            if is_wanted:
                records.append(raw)
            at += 1
        return Found(at, records, at > offset)

    def pull_sound(
        self, queue: QueueId, offset: int, end_offset: int, wanted: Wanted
    ) -> Found | None:
        """Return messages up to one that needs a closer look, or that would be too much; None if
        that is the first one. See `pull`.
        """
        created_index = self._created_index(queue.topic)
        records: list[bytes] = []
        at, end = offset, min(end_offset, offset + self._looked_at_max(wanted))
        bytes_left, passed_left = wanted.bytes_max, SCAN_BYTES
        while created_index is not None and at < end and len(records) < wanted.messages_max:
            asked = min(end - at, UNITS_AT_ONCE)
            units = self._store.units(queue.topic, queue.queue_id, at, asked)
            units = wanted.cut(units, len(records))
            self._limit(units)
            found = sound_records(
                self._runs(units), queue, at, created_index, min(bytes_left, passed_left),
                with_tags=wanted.codes is not None,
            )  # fmt: skip
            chosen = wanted.of(found, units)
            records += chosen
            chosen_bytes = sum(map(len, chosen))
            bytes_left -= chosen_bytes
            passed_left -= sum(map(len, found)) - chosen_bytes
            at += len(found)
            if len(found) < asked:
                break
        return Found(at, records, is_complete=True) if at > offset else None

    def _looked_at_max(self, wanted: Wanted) -> int:
        """Return how many units one pull looks at."""
        count = wanted.messages_max
        return count if wanted.codes is None else max(self._scan_units, count)

    def _looked_at(
        self, queue: QueueId, offset: int, count: int
    ) -> Iterator[tuple[EntryRuns, int]]:
        """Yield the units from `offset` on, each as its number among those read with it."""
        while count > 0:
            wanted = min(count, UNITS_AT_ONCE)
            units = self._store.units(queue.topic, queue.queue_id, offset, wanted)
            if not units:
                return
            runs = self._runs(units)
            yield from ((runs, number) for number in range(len(units)))
            offset, count = offset + len(units), count - len(units)

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
        waited_end: int = 0,
    ) -> Due:
        """Return the delayed messages from `offset` on that are due, as far as the queue has them.

        With `has_all`, the queue has all of them, unless the log no longer has the first ones;
        those are left out. Those below `waited_end` have waited long enough, whatever their units
        say. Raises UnitRefusedError and UnreadableError.
        """
        offset, units = self._kept_units(
            queue, offset, end_offset, has_all=has_all, count=messages_max
        )
        runs = self._runs(units)
        records: list[MessageRecord] = []
        size = 0
        for number, unit in enumerate(units):
            at = offset + number
            waits = unit.tags_code > now_ms and at >= waited_end
            if records and (waits or size + unit.size > bytes_max):
                break  # the next call looks at this one
            record = self._entry(queue, at, runs, number)[2]
            if unit.tags_code != consume_queue.tags_code(record):  # it might never be due
                raise UnitRefusedError(f"unit {at} of {queue} names the time {unit.tags_code}")
            if waits:
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
            return self._entry(queue, offset, self._runs(units), 0)[0].index
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
            first = self.kept.kept_offset(queue, end_offset, has_all=True)
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
            found = bytes(raw[ENTRY_HEADER_SIZE:])
            record = message_record.decode(found)
        except (LookupError, DamagedRecordError, MessageRecordError) as error:
            raise UnreadableError(
                f"there is no message at offset {physical_offset}: {error}"
            ) from error
        if header.pos != pos or record.physical_offset != physical_offset:
            raise UnreadableError(f"there is no message at offset {physical_offset}")
        return found

    def first_stored_at(self, queue: QueueId, timestamp_ms: int, first: int, end: int) -> int:
        """Return the offset of the first message that was stored at this time or later, from
        `first` up to `end`; `end` if there is none. Raises as `pull` does.
        """
        return first + first_number(
            end - first, lambda at: self.timestamp(queue, first + at) >= timestamp_ms
        )

    def timestamp(self, queue: QueueId, offset: int) -> int:
        """Return when a message was stored, in ms. Raises as `pull` does."""
        runs = self._runs([self._unit(queue, offset)])
        return self._entry(queue, offset, runs, 0)[2].store_timestamp

    def position(self, queue: QueueId, offset: int) -> int:
        """Return where the log has a message, as its unit says. Raises UnitRefusedError."""
        return self._unit(queue, offset).physical_offset

    def _unit(self, queue: QueueId, offset: int) -> Unit:
        units = self._store.units(queue.topic, queue.queue_id, offset, 1)
        if not units:
            raise UnitRefusedError(f"{queue} has no unit {offset}")
        return units[0]

    def _runs(self, units: Sequence[Unit]) -> EntryRuns:
        return EntryRuns(self._stored_at, units)

    def _entry(
        self, queue: QueueId, offset: int, runs: EntryRuns, number: int
    ) -> tuple[EntryHeader, bytes, MessageRecord]:
        """Return the checked entry of a unit: its header, its record's bytes, and the record."""
        unit = runs.units[number]
        pos = unit.physical_offset - ENTRY_HEADER_SIZE
        if not 0 < unit.size <= message_record.RECORD_BYTES_MAX:
            raise UnitRefusedError(f"unit {offset} of {queue} names {unit.size} bytes")
        try:
            source, begin, end = runs.entry(number)
        except LookupError as error:
            if pos < self._begin_pos():
                # It has a unit, so it was applied: a log that shows no message has removed it.
                self.kept.proved(queue, offset + 1, offset + 1, has_all=True)
                raise UnreadableError(f"message {offset} of {queue} was removed") from error
            raise UnitRefusedError(f"unit {offset} of {queue}: {error}") from error
        try:
            header = disk.check_entry(source, begin, end)
        except DamagedRecordError as error:
            if error.reason == "bad_body_crc":
                raise UnreadableError(f"message {offset} of {queue}: {error}") from error
            raise UnitRefusedError(f"unit {offset} of {queue}: {error}") from error
        raw = bytes(source[begin + ENTRY_HEADER_SIZE : end])
        try:
            record = message_record.decode(raw, check_crc=False)
        except MessageRecordError as error:
            raise UnitRefusedError(f"unit {offset} of {queue}: {error}") from error
        found = record.topic, record.queue_id, record.queue_offset, record.physical_offset
        if header.pos != pos or found != (*queue, offset, unit.physical_offset):
            raise UnitRefusedError(f"unit {offset} of {queue} names the message {found}")
        created_index = self._created_index(queue.topic)
        if created_index is None or header.index < created_index:
            raise DeletedError(f"message {offset} of {queue} was deleted with its topic")
        return header, raw, record
