"""An entry's `channel`: the number of the producer that appended it, and the append's sequence.

    channel   bits 31..16   number of the producer, 1 to PRODUCERS_MAX; 0: an ordinary append
              bits 15..0    low 16 bits of the append's sequence

Java writes 0 and never reads it. A NOOP with a number registers a producer under that number, and
replaces the producer that had it before; the index of that entry is the producer's identity. Higher
numbers do not belong to producers: one marks entries that change the membership (`memberships`).
"""

from collections.abc import Iterator, Sequence
from itertools import count, groupby
from operator import sub
from typing import Final, NamedTuple

from dledger_formats.log.disk import NORMAL

PRODUCERS_MAX: Final = 1024
WINDOW: Final = 1024
"""How many of a producer's sequences are remembered: the highest and those just below it. The next
sequence must not exceed the highest by more than this.
"""
SEQUENCE_MAX: Final = (1 << 63) - 1
_LOW_BITS: Final = 16
_LOW_MASK: Final = (1 << _LOW_BITS) - 1

assert PRODUCERS_MAX < 1 << (31 - _LOW_BITS), "a channel is never negative"
assert 2 * WINDOW < 1 << (_LOW_BITS - 1), "16 bits must tell apart what a leader may take"


class ChannelRun(NamedTuple):
    """Consecutive entries with channels of one producer whose low 16 bits rise by one.

    A producer's batch is one run, so members handle it once and not entry by entry.
    """

    first_index: int
    magic: int
    channel: int
    """The channel of the first entry."""
    length: int = 1
    """Number of entries."""

    @property
    def last_index(self) -> int:
        """Index of the last entry."""
        return self.first_index + self.length - 1

    def runs_from(self, index: int) -> "tuple[ChannelRun, ...]":
        """Return the part from an entry on as a run; nothing if the run ends before it."""
        if index <= self.first_index:
            return (self,)
        return (self.split_at(index)[1],) if index <= self.last_index else ()

    def split_at(self, index: int) -> "tuple[ChannelRun, ChannelRun]":
        """Split at an entry of the run other than the first, which begins the second part."""
        at = index - self.first_index
        return (
            self._replace(length=at),
            ChannelRun(index, self.magic, self.channel + at, self.length - at),
        )


def channel_of(number: int, sequence: int) -> int:
    """Return the channel of a producer's append; with sequence 0, that of its registration."""
    return number << _LOW_BITS | sequence & _LOW_MASK


def may_continue(channel: int) -> bool:
    """Return whether an entry with this channel may continue a run: its low bits are not 0."""
    return channel & _LOW_MASK != 0


def runs_of(first_index: int, magic: int, channels: Sequence[int]) -> Iterator[ChannelRun]:
    """Yield the runs of consecutive entries with these channels; entries with channel 0 have none.

    A NOOP is a run by itself: it registers a producer or changes the membership. Only C functions
    run for each entry, since a leader does this for every idempotent append.
    """
    index = first_index
    for _, rising in groupby(map(sub, channels, count())):
        length = len(list(rising))
        channel = channels[index - first_index]
        if channel:
            size_max = _LOW_MASK + 1 if magic == NORMAL else 1
            yield from _divided(ChannelRun(index, magic, channel, length), size_max)
        index += length


def _divided(run: ChannelRun, size_max: int) -> Iterator[ChannelRun]:
    """Divide consecutive entries with rising channels into runs of at most `size_max`."""
    while (size := min(size_max, _LOW_MASK + 1 - (run.channel & _LOW_MASK))) < run.length:
        part, run = run.split_at(run.first_index + size)
        yield part
    yield run


def channels_of(number: int, first_sequence: int, length: int) -> list[int]:
    """Return the channels of a producer's appends with consecutive sequences."""
    channel = channel_of(number, first_sequence)
    if (channel & _LOW_MASK) + length <= _LOW_MASK + 1:
        return list(range(channel, channel + length))
    return [channel_of(number, first_sequence + at) for at in range(length)]


def number_of(channel: int) -> int:
    """Return the producer's number."""
    return channel >> _LOW_BITS


def sequence_near(channel: int, near: int) -> int:
    """Return the sequence nearest to `near` that has the low bits of this channel."""
    distance = (channel - near) & _LOW_MASK
    return near + distance - (1 << _LOW_BITS if distance >> (_LOW_BITS - 1) else 0)
