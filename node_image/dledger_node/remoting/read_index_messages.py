"""Messages with which a follower asks its leader how far a linearizable read must see.

The answer stays true in every later term: each entry that was acknowledged before the request
arrived has that index or a lower one. So the follower's core need not see these messages; the
shell answers the reads that wait for it (`services.read_index`).
"""

from dataclasses import dataclass
from typing import Final

NOT_LEADING: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadIndexRequest:
    """Ask for the index up to which a linearizable read must see the log."""

    sender: str
    receiver: str
    incarnation: int
    """Distinguishes the sender's starts; the answer repeats it."""
    round: int
    """The number of the sender's round of reads; the answer repeats it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadIndexResponse:
    """The index, from a leader that proved after the request arrived that it leads."""

    sender: str
    receiver: str
    incarnation: int
    round: int
    index: int
    """NOT_LEADING if the sender does not lead, or could not prove it."""
