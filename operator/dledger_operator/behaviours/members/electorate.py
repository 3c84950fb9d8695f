"""Who votes and who learns, from what members say. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from dledger_formats.http.status import MembershipRole, NodeStatus
from dledger_operator.facts import Electorate
from dledger_operator.spec.group import Group


def remembered(status: Mapping[str, Any], group: Group | None) -> Electorate:
    """What a group's status remembers; what its spec asks for when it has none yet."""
    members = {
        each["id"]: each.get("membership", MembershipRole.VOTER)
        for each in status.get("members") or []
        if isinstance(each, Mapping) and "id" in each
    }
    voters = {key for key, role in members.items() if role == MembershipRole.VOTER}
    learners = {key for key, role in members.items() if role == MembershipRole.LEARNER}
    if not voters:
        return Electorate(voters=frozenset(group.member_ids if group else ()))
    return Electorate(voters=frozenset(voters), learners=frozenset(learners))


def heard(answers: Iterable[NodeStatus], before: Electorate) -> Electorate:
    """What the leader of the highest term says; as before when none does.

    Leaders of a version that knows no membership say nothing: theirs never changes.
    """
    leading = [answer for answer in answers if answer.master and answer.voters]
    if not leading:
        return before
    latest = max(leading, key=lambda answer: answer.term)
    return Electorate(voters=frozenset(latest.voters), learners=frozenset(latest.learners))
