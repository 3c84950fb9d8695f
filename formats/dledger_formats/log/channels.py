"""What an entry's `channel` says of who appended it: a producer's number, and an append's sequence.

    channel   bits 31..16   number of the producer, 1 to PRODUCERS_MAX; 0: an ordinary append
              bits 15..0    low 16 bits of the append's sequence

Java writes 0 and never looks at it. A NOOP with a number registers a producer under it, in the
place of whoever had the number before; the index of that entry is the producer's identity. Higher
numbers are no producers': one marks entries that change the membership (`memberships`).
"""

from typing import Final, NamedTuple

PRODUCERS_MAX: Final = 1024
WINDOW: Final = 1024
"""So many sequences of a producer, the highest and those below it, are remembered; and so far may
the next one lie above the highest.
"""
SEQUENCE_MAX: Final = (1 << 63) - 1
_LOW_BITS: Final = 16
_LOW_MASK: Final = (1 << _LOW_BITS) - 1

assert PRODUCERS_MAX < 1 << (31 - _LOW_BITS), "a channel is never negative"
assert 2 * WINDOW < 1 << (_LOW_BITS - 1), "16 bits must tell apart what a leader may take"


class ChannelEntry(NamedTuple):
    """What a header with a channel says of its producer."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    magic: int
    channel: int


def channel_of(number: int, sequence: int) -> int:
    """The channel of a producer's append; with sequence 0, of its registration."""
    return number << _LOW_BITS | sequence & _LOW_MASK


def number_of(channel: int) -> int:
    """The producer's number."""
    return channel >> _LOW_BITS


def sequence_near(channel: int, near: int) -> int:
    """Of all sequences with the channel's low bits, the one nearest to `near`."""
    distance = (channel - near) & _LOW_MASK
    return near + distance - (1 << _LOW_BITS if distance >> (_LOW_BITS - 1) else 0)
