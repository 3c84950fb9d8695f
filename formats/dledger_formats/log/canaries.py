"""Entries that test whether a group takes appends; they belong to no client.

    magic NOOP, channel CANARY_CHANNEL, empty body

Every reader skips a NOOP: the state machine, clients that print bodies, exports, the audit, Spark,
compaction, a broker's queues. So do those of earlier releases, and Java: to them it is an entry
that a leader appends for itself. The channel distinguishes a canary from those. Its number is
neither a producer's nor that of memberships, and members of earlier releases ignore NOOPs with such
numbers.
"""

from typing import Final

from dledger_formats.log import disk
from dledger_formats.log.channels import channel_of

CANARY_CHANNEL: Final = channel_of(0x7FFE, 0)


def is_canary(magic: int, channel: int) -> bool:
    """Return whether an entry with this magic and channel is a canary."""
    return channel == CANARY_CHANNEL and magic == disk.NOOP
