"""The table of producers: which sequences are in the log, and where. No IO.

The table is a function of the log. A registration assigns a number to a new producer and drops the
producer that had the number; an append with that number belongs to the producer. Members that note
the same entries in the same order have the same table, however these are divided into runs.

Entries after `stable_index` can be undone, since the log may still lose them.
"""

import enum
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from dledger_formats.log import disk
from dledger_formats.log.channels import (
    PRODUCERS_MAX,
    WINDOW,
    ChannelRun,
    channel_of,
    channels_of,
    number_of,
    sequence_near,
)
from dledger_node.store.derived.producer import (
    NOT_NOTED,
    Producer,
    Undo,
    note_appends,
    undo_appends,
)
from dledger_node.store.derived.stable_copy import StableCopy

UNDO_MAX: Final = 8192
"""Entries that can be undone one by one; to undo more, the log must be read again."""
ESTABLISHED_SEQUENCE: Final = 16
"""A producer with this sequence in the log is no longer new."""


class Finding(enum.Enum):
    """Why the table has no index for a sequence."""

    NEW = enum.auto()
    """The sequence is not in the log and may be appended."""
    UNKNOWN_PRODUCER = enum.auto()
    TOO_OLD = enum.auto()
    """The sequence is below the window and may or may not be in the log."""
    TOO_NEW = enum.auto()
    """The sequence is more than a window above the highest one."""


class Producers:
    """The table of a log whose entries are noted one by one, up to its end."""

    def __init__(
        self,
        producers: Iterable[Producer] = (),
        stable_index: int = -1,
        *,
        producers_max: int = PRODUCERS_MAX,
        window: int = WINDOW,
        undo_max: int = UNDO_MAX,
    ) -> None:
        """Take over the producers of a log at `stable_index`."""
        self.stable_index = stable_index
        """Entries up to here are committed and durable, and are never undone."""
        self._by_number = {producer.number: producer for producer in producers}
        self._by_identity = {producer.identity: producer for producer in self._by_number.values()}
        self._producers_max = producers_max
        self._window = window
        self._undo_max = undo_max
        self._undo: deque[Undo] = deque()
        self._undo_entries = 0
        self._copy: StableCopy | None = None
        # Entries up to here can no longer be undone.
        self._fixed_index = stable_index

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._by_number.values())

    def find(self, identity: int, sequence: int) -> int | Finding:
        """Return the index of a producer's entry with this sequence, or why the table has none."""
        producer = self._by_identity.get(identity)
        if producer is None:
            return Finding.UNKNOWN_PRODUCER
        above = sequence - producer.highest
        if above > 0:
            return Finding.NEW if above <= self._window else Finding.TOO_NEW
        if above <= -self._window:
            return Finding.TOO_OLD
        index = producer.indexes[sequence % self._window] if producer.indexes else NOT_NOTED
        return Finding.NEW if index == NOT_NOTED else index

    def find_run(self, identity: int, first: int, last: int) -> Finding | None:
        """Return NEW if a producer's sequences `first`..`last` may be appended as they are.

        They may be if all of them are above its highest sequence. Returns None if the log may have
        one of them: then each must be looked up separately.
        """
        producer = self._by_identity.get(identity)
        if producer is None:
            return Finding.UNKNOWN_PRODUCER
        if first <= producer.highest:
            return None
        return Finding.NEW if last - producer.highest <= self._window else Finding.TOO_NEW

    def channel(self, identity: int, sequence: int) -> int:
        """Return the channel of a known producer's append."""
        return channel_of(self._by_identity[identity].number, sequence)

    def channels(self, identity: int, first: int, count: int) -> list[int]:
        """Return the channels of a known producer's appends with consecutive sequences."""
        return channels_of(self._by_identity[identity].number, first, count)

    def next_number(self, recent_index: int = sys.maxsize) -> int:
        """Return the number for a new producer: a free one, or that of a producer to forget.

        The leader chooses, and the log records its choice. Once half of the table is new producers,
        they replace only one another, however many short-lived clients register. Of established
        producers whose last entries all are at `recent_index` or later, one with few appends goes.
        """
        if len(self._by_number) < self._producers_max:
            return next(n for n in range(1, self._producers_max + 1) if n not in self._by_number)
        new = [producer for producer in self if producer.highest < ESTABLISHED_SEQUENCE]
        idle = new if 2 * len(new) >= self._producers_max else self
        longest = min(idle, key=_last_index)
        if longest.highest >= ESTABLISHED_SEQUENCE and longest.last_index >= recent_index:
            by_work = sorted(self, key=lambda producer: (producer.highest, producer.last_index))
            longest = min(by_work[: self._producers_max // 2], key=_last_index)
        return longest.number

    def note(self, run: ChannelRun) -> None:
        """Note the next run of entries with channels in the log."""
        number = number_of(run.channel)
        if run.magic == disk.NOOP:
            if run.channel == channel_of(number, 0) and 1 <= number <= self._producers_max:
                self._register(run, number)
            return
        producer = self._by_number.get(number)
        while producer is not None:  # otherwise the log no longer holds its registration
            sequence = sequence_near(run.channel, producer.highest)
            # Sequences above the highest are noted together; a lower one may be in the log.
            size = self._window if sequence > producer.highest else 1
            if run.length <= size:
                self._append(run, producer, sequence)
                return
            part, run = run.split_at(run.first_index + size)
            self._append(part, producer, sequence)

    def mark_stable(self, index: int) -> None:
        """Record that entries up to `index` are committed and durable, so they are never undone."""
        self.stable_index = max(self.stable_index, index)
        while self._undo and self._undo[0].run.last_index <= index:
            self._drop_oldest_undo()

    def undo_from(self, first_index: int) -> bool:
        """Undo entry `first_index` and all later ones.

        Returns False, and changes nothing, if the table cannot undo that many.
        """
        if first_index <= max(self._fixed_index, self.stable_index):
            return False
        self._end_copy()
        while self._undo and self._undo[-1].run.last_index >= first_index:
            undo = self._undo.pop()
            self._undo_entries -= undo.run.length
            self._undo_one(undo)
            if undo.run.first_index < first_index:
                self.note(undo.run.split_at(first_index)[0])
        return True

    def begin_copy(self) -> StableCopy | None:
        """Begin to copy the producers as of `stable_index`; None if later entries are not undoable.

        One copy at a time: another one ends it.
        """
        self._end_copy()
        if self._fixed_index > self.stable_index:
            return None
        self._copy = StableCopy(self._by_number, self._undo, self.stable_index, self._window)
        return self._copy

    def stable_copy(self) -> list[Producer] | None:
        """Copy the producers as of `stable_index` at once; None as for `begin_copy`."""
        copy = self.begin_copy()
        if copy is None:
            return None
        for _ in copy.parts():
            pass
        self._end_copy()
        return copy.producers

    def _end_copy(self) -> None:
        if self._copy is not None:
            self._copy.is_void = True
            self._copy = None

    def _register(self, run: ChannelRun, number: int) -> None:
        replaced = self._by_number.get(number)
        if replaced is not None:
            del self._by_identity[replaced.identity]
        identity = run.first_index
        producer = Producer(identity=identity, number=number, last_index=identity)
        self._by_number[number] = self._by_identity[identity] = producer
        self._keep(Undo(run, producer, replaced))

    def _append(self, run: ChannelRun, producer: Producer, sequence: int) -> None:
        undo = note_appends(producer, run, sequence, self._window)
        if undo is not None:
            self._keep(undo)

    def _keep(self, undo: Undo) -> None:
        self._undo.append(undo)
        if self._copy is not None:
            self._copy.note(undo)
        self._undo_entries += undo.run.length
        while self._undo_entries > self._undo_max:
            self._drop_oldest_undo()

    def _drop_oldest_undo(self) -> None:
        run = self._undo.popleft().run
        self._undo_entries -= run.length
        self._fixed_index = run.last_index

    def _undo_one(self, undo: Undo) -> None:
        if undo.noted is not None:
            undo_appends(undo.producer, undo, self._window)
            return
        del self._by_identity[undo.producer.identity]
        del self._by_number[undo.producer.number]
        if undo.replaced is not None:
            self._by_number[undo.producer.number] = undo.replaced
            self._by_identity[undo.replaced.identity] = undo.replaced


def _last_index(producer: Producer) -> int:
    return producer.last_index
