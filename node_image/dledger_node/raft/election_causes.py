"""Why a member stands for election: counted and logged, so that no election needs guessing."""

import enum
from dataclasses import dataclass


class ElectionCause(enum.Enum):
    """What made a member ask for votes."""

    NO_HEARTBEAT = "NO_HEARTBEAT"
    """Its leader sent nothing for an election timeout."""
    LEADER_LINK_LOST = "LEADER_LINK_LOST"
    """The connection to its leader broke, and the leader sent nothing since."""
    NO_LEADER = "NO_LEADER"
    """It knew no leader of its term for an election timeout."""
    NO_WINNER = "NO_WINNER"
    """Its last round of votes ended without a winner."""
    TRANSFER = "TRANSFER"
    """The leader asked it to take the leadership."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """The beginning of an election, as the member that began it saw it."""

    cause: ElectionCause
    term: int
    """The member's term when it began."""
    leader_id: str | None
    """The leader that it followed until then, if any."""
    silent_ticks: int
    """Ticks since the last request of any leader, or since the start."""
