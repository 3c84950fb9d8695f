"""Why a member stands for election, and why it no longer leads: counted and logged, so that no
election needs guessing.
"""

import enum
from dataclasses import dataclass


class ElectionCause(enum.Enum):
    """What made a member ask for votes."""

    NO_HEARTBEAT = "NO_HEARTBEAT"
    """The member's leader sent nothing for an election timeout."""
    LEADER_LINK_LOST = "LEADER_LINK_LOST"
    """The connection to the member's leader broke, and the leader has sent nothing since."""
    NO_LEADER = "NO_LEADER"
    """The member knew no leader of its term for an election timeout."""
    NO_WINNER = "NO_WINNER"
    """The member's last round of votes ended without a winner."""
    TRANSFER = "TRANSFER"
    """The leader asked the member to take the leadership."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """The beginning of an election, as the member that began it saw it."""

    cause: ElectionCause
    term: int
    """The member's term when it began."""
    leader_id: str | None
    """The leader that it followed last in this term, if any."""
    silent_ticks: int
    """Ticks since the last request of any leader, or since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumLoss:
    """The end of a leadership because no majority answered."""

    term: int
    silent_ticks: int
    """Ticks since a majority, counting the leader, last answered."""
