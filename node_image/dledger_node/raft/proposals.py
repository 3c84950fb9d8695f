"""What the core answers to its shell's own wishes: appends, reads, transfers."""

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Bodies that became the entries `first_index`..`last_index` of `term`.

    They are stored once the committed index reaches them while this member still leads `term`;
    once it does not, others may have taken their places.
    """

    first_index: int
    last_index: int
    term: int


class RefusalReason(enum.Enum):
    """Why nothing was done (names of DLedger's `DLedgerResponseCode`)."""

    NOT_LEADER = "NOT_LEADER"
    LEADER_TRANSFERRING = "LEADER_TRANSFERRING"
    """The leadership is being handed over; whoever leads next takes appends again."""
    UNKNOWN_MEMBER = "UNKNOWN_MEMBER"
    """The transferee is no other voter of the group."""
    FALL_BEHIND_TOO_MUCH = "FALL_BEHIND_TOO_MUCH"
    """The transferee lags too far behind to take over in time, or still joins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Nothing was done, and never will be."""

    reason: RefusalReason
    leader_id: str | None
    """Who leads, as far as this member knows."""
