"""CHANGE_MEMBERSHIP, a request of our own: change who belongs to the group, one member at a time.

    request    {group, remoteId, change, memberId}
    response   {code, group, leaderId, term, voters, learners, index}

The leader answers SUCCESS once the change is committed, and at once where all is so already: a
request that was lost may be sent again. `voters` and `learners` are who belongs to the group then,
by the entry `index`.

Codes of refusals, beside those of every request. Until it helps, ask again: LEADER_NOT_READY,
LEADER_TRANSFERRING, MEMBERSHIP_CHANGING, FALL_BEHIND_TOO_MUCH. Something must be done first:
NO_SUCH_MEMBER, LAST_VOTER, QUORUM_AT_RISK, TOO_MANY_MEMBERS, DISK_FULL. A server that does not know
the request, as Java's, answers REQUEST_CODE_NOT_SUPPORTED.
"""

import enum
from typing import Final

import msgspec

from dledger_formats.protocol.requests import Int64, Message

CHANGE_MEMBERSHIP: Final = 52013
"""The request's code in its frame, among those that are ours (52000 to 52999)."""


def _minus_one() -> int:
    return -1


class ChangeKind(enum.StrEnum):
    """What becomes of the member."""

    ADD_LEARNER = "ADD_LEARNER"
    """It takes entries and does not vote; nothing is changed if it votes already."""
    PROMOTE = "PROMOTE"
    """A learner votes from now on."""
    DEMOTE = "DEMOTE"
    """A voter is a learner from now on."""
    REMOVE = "REMOVE"
    """It belongs to the group no more."""


class ChangeMembershipRequest(Message, kw_only=True, frozen=True):
    """Change one member."""

    change: ChangeKind
    member_id: str


class ChangeMembershipResponse(Message, kw_only=True, frozen=True):
    """On SUCCESS a quorum holds the change."""

    voters: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()
    index: Int64 = msgspec.field(default_factory=_minus_one)
    """-1 where the first voters are still those of the settings, or that entry was removed."""
