"""Determines a group's voters and learners. Pure.

Only ids that members may have count: the operator judges, and creates pods for, every ordinal up to
that of a member, so a forged id would exhaust it and the StatefulSet controller.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dledger_formats.http.status import MembershipRole, NodeStatus
from dledger_formats.protocol.membership_change import ChangeMembershipResponse
from dledger_operator import names
from dledger_operator.observed_state import Membership
from dledger_operator.spec.group import Group


def recorded_membership(status: Mapping[str, Any], group: Group | None) -> Membership:
    """Return the membership in the group's status. Without one, the spec's members are voters.

    Anyone who may write the status may have written an impossible id, which is ignored.
    """
    members = {
        each["id"]: each.get("membership")
        for each in status.get("members") or []
        if isinstance(each, Mapping) and each.get("id") in names.MEMBER_IDS
    }
    voters = {key for key, role in members.items() if role == MembershipRole.VOTER}
    learners = {key for key, role in members.items() if role == MembershipRole.LEARNER}
    if not voters:
        return Membership(voters=frozenset(group.member_ids if group else ()))
    return Membership(voters=frozenset(voters), learners=frozenset(learners))


def reported_membership(answers: Iterable[NodeStatus], previous: Membership) -> Membership:
    """Return the membership that the leader of the highest term reports, else `previous`.

    A report without voters is ignored: a group always has at least one.
    """
    leading = [each for each in answers if each.master and each.voters and is_possible(each)]
    if not leading:
        return previous
    latest = max(leading, key=lambda answer: answer.term)
    return Membership(voters=frozenset(latest.voters), learners=frozenset(latest.learners))


def is_possible(answer: NodeStatus | ChangeMembershipResponse) -> bool:
    """Return whether a member names only voters and learners that a group may have."""
    return {*answer.voters, *answer.learners} <= {*names.MEMBER_IDS}


def proven_leader(answers: Sequence[NodeStatus]) -> NodeStatus | None:
    """Return the answer of the proven leader of the highest term that any member knows."""
    highest = max((answer.term for answer in answers), default=-1)
    return next((each for each in answers if each.master and each.term == highest), None)
