"""CHANGE_MEMBERSHIP, an extension of this project: change the membership by one member.

    request    {group, remoteId, change, memberId, groupIdentity, adminToken}
    response   {code, group, leaderId, term, voters, learners, index}

The leader answers SUCCESS once the change is committed, and at once if the membership is already as
requested, so a lost request may be sent again. `voters` and `learners` are the membership after the
change, which the entry `index` holds.

Codes of refusals, in addition to those of every request. LEADER_NOT_READY, LEADER_TRANSFERRING,
MEMBERSHIP_CHANGING and FALL_BEHIND_TOO_MUCH are temporary: send the request again. NO_SUCH_MEMBER,
LAST_VOTER, QUORUM_AT_RISK, TOO_MANY_MEMBERS and DISK_FULL require an action first. A server without
this request, such as Java's, answers REQUEST_CODE_NOT_SUPPORTED.
"""

import enum
from typing import Final

import msgspec

from dledger_formats.protocol.administration import AdminRequest
from dledger_formats.protocol.decoding import Int64
from dledger_formats.protocol.requests import Response

CHANGE_MEMBERSHIP: Final = 52013
"""The request's code in its frame, from this project's range (52000 to 52999)."""
PROMOTION_LAG_ENTRIES_MAX: Final = 1000
"""How many entries a learner may lack to be promoted."""


def _minus_one() -> int:
    return -1


class ChangeKind(enum.StrEnum):
    """The change to one member."""

    ADD_LEARNER = "ADD_LEARNER"
    """A new member becomes a learner, which does not vote. A voter stays a voter."""
    PROMOTE = "PROMOTE"
    """A learner becomes a voter."""
    DEMOTE = "DEMOTE"
    """A voter becomes a learner."""
    REMOVE = "REMOVE"
    """The member is removed from the group."""


class ChangeMembershipRequest(AdminRequest, kw_only=True, frozen=True):
    """Change one member."""

    change: ChangeKind
    member_id: str


class ChangeMembershipResponse(Response, kw_only=True, frozen=True):
    """On SUCCESS a quorum holds the change."""

    voters: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()
    index: Int64 = msgspec.field(default_factory=_minus_one)
    """Index of the entry with the membership; -1 if the settings still determine the voters, or if
    the entry was removed.
    """
