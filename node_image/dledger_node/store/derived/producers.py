"""Which sequence of which producer is in the log, and where: a function of the log, without IO.

The log says everything: a registration gives a number to a new producer, and forgets who had it;
an append with that number is the producer's. Whoever notes the same entries in the same order
therefore knows, and has forgotten, the same.

What is noted above `settled_index` can be taken back, since the log may yet lose it.
"""

import enum
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dledger_formats.log import disk
from dledger_formats.log.channels import (
    PRODUCERS_MAX,
    WINDOW,
    ChannelEntry,
    channel_of,
    number_of,
    sequence_near,
)

UNDO_MAX: Final = 8192
"""Entries that can be taken back one by one. Beyond, the log must be read again."""
NOT_NOTED: Final = -1


class Finding(enum.Enum):
    """What is known of a sequence that is not noted."""

    NEW = enum.auto()
    """It is not in the log, and may be appended."""
    UNKNOWN_PRODUCER = enum.auto()
    TOO_OLD = enum.auto()
    """It lies below the window, and may be in the log or not."""
    TOO_NEW = enum.auto()


@dataclass(slots=True, kw_only=True)
class Producer:
    """One who numbers its appends."""

    identity: int
    """Index of its registration."""
    number: int
    last_index: int
    """Its last entry, or its registration."""
    highest: int = 0
    """Of its sequences; 0 before the first."""
    indexes: "array[int]" = field(default_factory=lambda: array("q"))
    """By sequence % WINDOW, those of the window (highest - WINDOW, highest]; NOT_NOTED where a
    sequence is not in the log. Empty before the first.
    """


class _Undo(NamedTuple):
    """How to take an entry back; of an append, what its producer was before."""

    entry: ChannelEntry
    producer: Producer
    """Whose append it is; or whom a registration has made."""
    replaced: Producer | None
    """Whom a registration has made forgotten."""
    highest: int = 0
    last_index: int = 0
    place: int = 0
    """Where in `indexes` the append went."""
    noted: int = NOT_NOTED
    """What was there."""
    indexes: "array[int] | None" = None
    """All of them, when sequences were skipped."""


class Producers:
    """The producers of a log that is noted entry by entry, up to its end."""

    def __init__(self, producers: Iterable[Producer] = (), settled_index: int = -1) -> None:
        """Take over what a log has up to `settled_index`."""
        self.settled_index = settled_index
        """Up to here the log stays what it is."""
        self._by_number = {producer.number: producer for producer in producers}
        self._by_identity = {producer.identity: producer for producer in self._by_number.values()}
        self._undo: deque[_Undo] = deque()
        # Entries up to here can be taken back no more.
        self._fixed_index = settled_index

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._by_number.values())

    def find(self, identity: int, sequence: int) -> int | Finding:
        """The index of the entry with this sequence of this producer; or why there is none."""
        producer = self._by_identity.get(identity)
        if producer is None:
            return Finding.UNKNOWN_PRODUCER
        above = sequence - producer.highest
        if above > 0:
            return Finding.NEW if above <= WINDOW else Finding.TOO_NEW
        if above <= -WINDOW:
            return Finding.TOO_OLD
        index = producer.indexes[sequence % WINDOW] if producer.indexes else NOT_NOTED
        return Finding.NEW if index == NOT_NOTED else index

    def channel(self, identity: int, sequence: int) -> int:
        """The channel of a known producer's append."""
        return channel_of(self._by_identity[identity].number, sequence)

    def next_number(self) -> int:
        """The number for a new producer: a free one, or that of the one who was silent longest."""
        if len(self._by_number) < PRODUCERS_MAX:
            return next(n for n in range(1, PRODUCERS_MAX + 1) if n not in self._by_number)
        return min(self, key=lambda producer: producer.last_index).number

    def note(self, entry: ChannelEntry) -> None:
        """Note the next entry of the log that has a channel."""
        number = number_of(entry.channel)
        if entry.magic == disk.NOOP:
            if entry.channel == channel_of(number, 0) and 1 <= number <= PRODUCERS_MAX:
                self._register(entry, number)
            return
        producer = self._by_number.get(number)
        if producer is not None:  # otherwise its registration is not in sight
            self._append(entry, producer)

    def settle(self, index: int) -> None:
        """Let entries up to `index` stay; called whenever more of the log is known to stay."""
        self.settled_index = max(self.settled_index, index)
        while self._undo and self._undo[0].entry.index <= index:
            self._fixed_index = self._undo.popleft().entry.index

    def take_back(self, first_index: int) -> bool:
        """Forget the entry `first_index` and all behind it; False, with nothing done, when that
        was noted too long ago.
        """
        if first_index <= max(self._fixed_index, self.settled_index):
            return False
        while self._undo and self._undo[-1].entry.index >= first_index:
            self._take_back(self._undo.pop())
        return True

    def settled(self) -> "list[Producer] | None":
        """Copies of the producers as of `settled_index`; None when that is not known any more."""
        if self._fixed_index > self.settled_index:
            return None
        unsettled = [undo.entry for undo in self._undo]
        self.take_back(self.settled_index + 1)
        copies = [
            Producer(
                identity=producer.identity,
                number=producer.number,
                last_index=producer.last_index,
                highest=producer.highest,
                indexes=producer.indexes[:],
            )
            for producer in self._by_number.values()
        ]
        for entry in unsettled:
            self.note(entry)
        return copies

    def _register(self, entry: ChannelEntry, number: int) -> None:
        replaced = self._by_number.get(number)
        if replaced is not None:
            del self._by_identity[replaced.identity]
        producer = Producer(identity=entry.index, number=number, last_index=entry.index)
        self._by_number[number] = self._by_identity[entry.index] = producer
        self._keep(_Undo(entry, producer, replaced))

    def _append(self, entry: ChannelEntry, producer: Producer) -> None:
        highest, indexes = producer.highest, producer.indexes
        sequence = sequence_near(entry.channel, highest)
        above = sequence - highest
        place = sequence % WINDOW
        if sequence < 1 or above <= -WINDOW or (above <= 0 and indexes[place] != NOT_NOTED):
            return  # no leader appends such a one; of two, the first counts
        before, last_index = None, producer.last_index
        if above > 1 or not indexes:
            before = indexes[:]
            indexes.extend([NOT_NOTED] * (WINDOW - len(indexes)))
            for skipped in range(max(highest, sequence - WINDOW) + 1, sequence):
                indexes[skipped % WINDOW] = NOT_NOTED
        undo = _Undo(entry, producer, None, highest, last_index, place, indexes[place], before)
        indexes[place] = producer.last_index = entry.index
        producer.highest = max(highest, sequence)
        self._keep(undo)

    def _keep(self, undo: _Undo) -> None:
        self._undo.append(undo)
        if len(self._undo) > UNDO_MAX:
            self._fixed_index = self._undo.popleft().entry.index

    def _take_back(self, undo: _Undo) -> None:
        producer = undo.producer
        if undo.entry.magic == disk.NOOP:
            del self._by_identity[producer.identity]
            del self._by_number[producer.number]
            if undo.replaced is not None:
                self._by_number[producer.number] = undo.replaced
                self._by_identity[undo.replaced.identity] = undo.replaced
            return
        if undo.indexes is None:
            producer.indexes[undo.place] = undo.noted
        else:
            producer.indexes = undo.indexes
        producer.highest, producer.last_index = undo.highest, undo.last_index
