"""Degraded: the group serves less than its spec asks for."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from dledger_formats.audit import Verdict
from dledger_operator import names, reasons
from dledger_operator.conditions import audit_passed, cures
from dledger_operator.conditions.condition import MESSAGE_LENGTH_MAX, Judgment
from dledger_operator.observed_state import ObservedGroup
from dledger_operator.problem import Problem

TYPE = "Degraded"
FOREIGN_PODS: Final = "ForeignPods"
NAMED_MAX: Final = 5
NAMES_LENGTH_MAX: Final = 400
OTHER_LENGTH_MAX: Final = 200
"""Length to which the message of a cause is cut that is not the most specific one."""


def judge(observed: ObservedGroup) -> Judgment:
    """Report the most specific cause, and beside it the pods that are not the group's: whoever gave
    them its label need not be the one who sees to the cause.
    """
    found, foreign = _cause(observed), _foreign_pods(observed)
    if not foreign:
        return found
    if not (found.holds or observed.hibernates):
        return Judgment(holds=True, reason=FOREIGN_PODS, message=foreign)
    message = f"{found.message[: MESSAGE_LENGTH_MAX - len(foreign) - 2]}; {foreign}"
    return replace(found, message=message)


def _cause(observed: ObservedGroup) -> Judgment:
    """Return the most specific cause, and name the others."""
    if observed.hibernates:
        message = "the group hibernates, so no member runs"
        return Judgment(holds=False, reason=reasons.HIBERNATED, message=message)
    causes = [each for each in _causes(observed) if each]
    if causes:
        return Judgment(holds=True, reason=causes[0].reason, message=_together(causes))
    if any(not member.ready for member in observed.voters):
        return Judgment(holds=False, reason="Starting", message="members are starting")
    return Judgment(holds=False, reason="AsExpected", message="all voters are ready")


def _causes(observed: ObservedGroup) -> Iterator[Problem | None]:
    """Yield the causes, the most specific one first: a problem of a pod or volume claim, what will
    stop a member, what the last audit found, a voter that is not ready, damage that a voter cannot
    mend, pods that the operator cannot label, and a part of the spec that cannot be applied.
    Members that do not vote yet do not count.
    """
    yield member_problem(observed)
    if dangers := [member.danger for member in observed.members if member.danger]:
        message = "; ".join(each.message for each in dangers)
        yield Problem(reason=dangers[0].reason, message=message)
    if observed.audit and observed.audit.verdict is not Verdict.SOUND:
        reason = f"Audit{observed.audit.verdict.value}"
        yield Problem(reason=reason, message=audit_passed.message_of(observed.audit))
    yield _absent(observed)
    if unmended := [member for member in observed.voters if member.unmended]:
        message = "; ".join(f"{member.pod}: {member.unmended}" for member in unmended)
        yield Problem(reason="DamageNotMended", message=message)
    yield observed.follow_problem
    yield observed.warning


def _absent(observed: ObservedGroup) -> Problem | None:
    """Return which voters are not ready, besides those that `member_problem` names."""
    absent = [member for member in observed.voters if not (member.ready or member.problem)]
    if not absent or observed.starting:
        return None
    message = "; ".join(f"{member.pod}: {member.reason}" for member in absent)
    reason = reasons.MEMBER_NOT_READY
    if all(member.is_healing for member in absent):
        reason = "MemberHealing"
    elif without := [member for member in absent if member.is_without_log]:
        reason = "MemberWithoutLog"
        message += (
            f"; the log of {', '.join(member.member_id for member in without)} is lost, older "
            "than it was, or empty, so the member takes the leader's and votes again when it "
            "has everything; find out what happened to its volume if you have not replaced it"
        )
    return Problem(reason=reason, message=message)


def _together(causes: Sequence[Problem]) -> str:
    """Return the message of the first cause, cut so that the others are seen behind it."""
    first, *others = causes
    also = "".join(f"; {each.reason}: {each.message[:OTHER_LENGTH_MAX]}" for each in others)
    also = also[: MESSAGE_LENGTH_MAX // 2]
    return f"{first.message[: MESSAGE_LENGTH_MAX - len(also)]}{also}"


def _foreign_pods(observed: ObservedGroup) -> str:
    """Name the pods that are not the group's; empty if there are none."""
    if not (foreign := observed.foreign_pods):
        return ""
    more = f" and {len(foreign) - NAMED_MAX} more" if len(foreign) > NAMED_MAX else ""
    return (
        f"pods that are not the group's carry its label {names.GROUP_LABEL}: "
        f"{', '.join(foreign[:NAMED_MAX])[:NAMES_LENGTH_MAX]}{more}; nothing they say is believed, "
        "and they lose their role, but the budget and the Services of all members count them; "
        "remove the label from these pods"
    )


def member_problem(observed: ObservedGroup) -> Problem | None:
    """Return the problems of all pods and volume claims and what to do about them, with the reason
    of the first one.
    """
    problems = [
        (member.pod, member.problem)
        for member in observed.members
        if member.problem and not member.ready
    ]
    if not problems:
        return None
    return Problem(reason=problems[0][1].reason, message=cures.listed(problems))
