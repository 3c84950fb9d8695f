"""An entry's `channel`: the number of the producer that appended it, and the append's sequence.

    channel   bits 31..16   number of the producer, 1 to PRODUCERS_MAX; 0: an ordinary append
              bits 15..0    low 16 bits of the append's sequence

Java writes 0 and never reads it. A NOOP with a number registers a producer under that number, and
replaces the producer that had it before; the index of that entry is the producer's identity. Higher
numbers do not belong to producers: one marks entries that change the membership (`memberships`).
"""

from typing import Final, NamedTuple

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


class ChannelEntry(NamedTuple):
    """The fields of a header with a channel."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used here
    magic: int
    channel: int


def channel_of(number: int, sequence: int) -> int:
    """Return the channel of a producer's append; with sequence 0, that of its registration."""
    return number << _LOW_BITS | sequence & _LOW_MASK


def number_of(channel: int) -> int:
    """Return the producer's number."""
    return channel >> _LOW_BITS


def sequence_near(channel: int, near: int) -> int:
    """Return the sequence nearest to `near` that has the low bits of this channel."""
    distance = (channel - near) & _LOW_MASK
    return near + distance - (1 << _LOW_BITS if distance >> (_LOW_BITS - 1) else 0)
