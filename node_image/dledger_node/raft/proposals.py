"""What the core answers to its shell's own wishes: appends, reads, transfers, changes of the
membership.
"""

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
    """The transferee is no other voter of the group; or there is nobody whom to change."""
    FALL_BEHIND_TOO_MUCH = "FALL_BEHIND_TOO_MUCH"
    """The transferee, or the learner that shall vote, lags too far behind, or still joins."""
    MEMBERSHIP_CHANGING = "MEMBERSHIP_CHANGING"
    """An earlier change is not committed yet."""
    TERM_NOT_COMMITTED = "TERM_NOT_COMMITTED"
    """No entry of this leader's term is committed yet: it may not know the last change."""
    ALREADY_MEMBER = "ALREADY_MEMBER"
    """The member is already what it shall become."""
    LAST_VOTER = "LAST_VOTER"
    """Nobody would be left to vote."""
    TOO_MANY_MEMBERS = "TOO_MANY_MEMBERS"
    """A membership has a bound: `membership.MEMBERS_MAX`."""
    QUORUM_AT_RISK = "QUORUM_AT_RISK"
    """Those voters that are well now would be no majority of all: nothing more could be committed,
    not even the change.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Nothing was done, and never will be."""

    reason: RefusalReason
    leader_id: str | None
    """Who leads, as far as this member knows."""
