"""Results of the shell's requests to the core: appends, reads, transfers, membership changes."""

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Proposed bodies, which became the entries `first_index`..`last_index` of `term`.

    They are committed once the committed index reaches them while this member still leads `term`.
    If it stops leading earlier, other entries may take their indexes.
    """

    first_index: int
    last_index: int
    term: int


class RefusalReason(enum.Enum):
    """Why the core refused a request (names of DLedger's `DLedgerResponseCode`)."""

    NOT_LEADER = "NOT_LEADER"
    LEADER_TRANSFERRING = "LEADER_TRANSFERRING"
    """A leadership transfer is in progress; the next leader takes appends again."""
    UNKNOWN_MEMBER = "UNKNOWN_MEMBER"
    """The transferee is not another voter of the group, or the member to change is not known."""
    FALL_BEHIND_TOO_MUCH = "FALL_BEHIND_TOO_MUCH"
    """The transferee, or the learner to promote, lags too far behind, or is joining; or the
    transferee is silent or on a full volume, or has just declined, since its state is behind.
    """
    MEMBERSHIP_CHANGING = "MEMBERSHIP_CHANGING"
    """An earlier change is not committed yet."""
    TERM_NOT_COMMITTED = "TERM_NOT_COMMITTED"
    """No entry of this leader's term is committed yet, so it may not know the last change."""
    ALREADY_MEMBER = "ALREADY_MEMBER"
    """The member already has the requested role."""
    LAST_VOTER = "LAST_VOTER"
    """The change would leave the group without voters."""
    TOO_MANY_MEMBERS = "TOO_MANY_MEMBERS"
    """The group already has `membership.MEMBERS_MAX` members."""
    QUORUM_AT_RISK = "QUORUM_AT_RISK"
    """After the change, the healthy voters with room would not be a majority: nothing could be
    committed, not even the change itself.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refused request, which has no effect now or later."""

    reason: RefusalReason
    leader_id: str | None
    """The leader of the term, if this member knows it."""
