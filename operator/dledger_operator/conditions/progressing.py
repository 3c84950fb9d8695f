"""Progressing: the members, their pods, settings or volumes are not yet what the spec asks for."""

from typing import Final

from dledger_operator import names, reasons
from dledger_operator.conditions import cures
from dledger_operator.conditions.condition import Judgment
from dledger_operator.observed_state import ObservedGroup

TYPE = "Progressing"
ROLLING_OUT: Final = "RollingOut"
SETTINGS_PENDING: Final = "SettingsPending"


def judge(observed: ObservedGroup) -> Judgment:
    """Report whether the spec is reached: every desired member votes, the group has no other member
    and no extra pod, every pod is of the revision that the spec asks for, every member that answers
    has the live settings in force, and every volume has its size. The message lists the remaining
    steps and what blocks them.
    """
    if observed.hibernate:
        return _hibernating(observed)
    if unknown := _unknown(observed):
        return unknown
    wanted = {names.member_id(ordinal) for ordinal in range(observed.replicas)}
    voters, learners = observed.membership.voters, observed.membership.learners
    extra = {member.member_id for member in observed.members if member.exists} - wanted
    scaled = voters == wanted and not learners and not extra
    if scaled and not observed.behind and observed.roll_problem and not observed.paused:
        problem = observed.roll_problem
        rest = "".join(f"; {each}" for each in _rest_left(observed))
        message = f"every pod is made of what the spec asks for; {problem.message}{rest}"
        return Judgment(holds=True, reason=problem.reason, message=message)
    if scaled and not observed.unfinished:
        return _as_requested(observed)
    to_add = sorted(wanted - voters)
    to_remove = sorted((voters | learners | extra) - wanted)
    members_left = [] if scaled else [_members_left(observed, to_add, to_remove)]
    message = "; ".join([*members_left, *_rest_left(observed)])
    if observed.paused:
        return Judgment(
            holds=True, reason=reasons.PAUSED, message=f"{message}; spec.paused is true"
        )
    waiting = observed.plan.waiting if observed.plan else None
    if waiting and observed.behind:
        message += f"; {waiting.message}"
    if scaled and observed.scaling_problem:  # such as volume claims that may not be deleted
        message += f"; {observed.scaling_problem.message}"
    if scaled and not observed.behind:
        reason = observed.growth.reason if observed.growth else SETTINGS_PENDING
        return Judgment(holds=True, reason=reason, message=message)
    if scaled:
        return Judgment(
            holds=True, reason=waiting.reason if waiting else ROLLING_OUT, message=message
        )
    if observed.scaling_problem:
        message += f"; {observed.scaling_problem.message}"
        new = [each for each in observed.members if each.member_id in to_add and not each.ready]
        if in_the_way := cures.listed((each.pod, each.problem) for each in new if each.problem):
            message += f"; {in_the_way}"
        return Judgment(holds=True, reason=observed.scaling_problem.reason, message=message)
    return Judgment(holds=True, reason="Growing" if to_add else "Shrinking", message=message)


def _unknown(observed: ObservedGroup) -> Judgment | None:
    """Return that nothing is known of a spec of which nothing was applied, or perhaps nothing:
    whoever waits for a change must not take it for done.
    """
    problem, nothing_applied = observed.problem, observed.first_voters is None
    if problem and (nothing_applied or problem.reason == reasons.RECONCILE_FAILED):
        return Judgment(holds=None, reason=problem.reason, message=problem.message)
    return None


def _as_requested(observed: ObservedGroup) -> Judgment:
    message = f"the group has {observed.replicas} voters, as spec.replicas asks for"
    if observed.plan and observed.plan.waiting:
        message += f"; an update is ready: {observed.plan.waiting.message}"
    if observed.scaling_problem:  # such as volume claims that may not be deleted
        message += f"; {observed.scaling_problem.message}"
    return Judgment(holds=False, reason="AsRequested", message=message)


def _hibernating(observed: ObservedGroup) -> Judgment:
    if observed.hibernates:
        message = "the group hibernates, as spec.hibernate asks for"
        return Judgment(holds=False, reason=reasons.HIBERNATED, message=message)
    problem, message = observed.scaling_problem, "the group is to hibernate"
    if observed.paused and not observed.falls_asleep:
        return Judgment(
            holds=True, reason=reasons.PAUSED, message=f"{message}; spec.paused is true"
        )
    if observed.falls_asleep:
        left = [member.pod for member in observed.members if member.exists]
        message += f"; {', '.join(left)} {'has' if len(left) == 1 else 'have'} not ended yet"
        stuck = [member.problem for member in observed.members if member.problem]
        problem = stuck[0] if stuck else problem
    if problem:
        return Judgment(holds=True, reason=problem.reason, message=f"{message}; {problem.message}")
    return Judgment(holds=True, reason=reasons.HIBERNATING, message=message)


def pods_behind(observed: ObservedGroup) -> str:
    """Name the pods that do not run what the spec asks for, and in which parts they differ."""
    listed = ", ".join(f"{member.pod} ({member.behind})" for member in observed.behind)
    return f"pods that do not run what the spec asks for: {listed}"


def _rest_left(observed: ObservedGroup) -> list[str]:
    """Name what members lack besides their membership."""
    return [
        *([pods_behind(observed)] if observed.behind else []),
        *([_without_settings(observed)] if observed.lacking else []),
        *([observed.growth.message] if observed.growth else []),
    ]


def _without_settings(observed: ObservedGroup) -> str:
    listed = ", ".join(f"{member.pod} ({member.lacks})" for member in observed.lacking)
    return f"members that do not have these settings in force yet: {listed}"


def _members_left(observed: ObservedGroup, to_add: list[str], to_remove: list[str]) -> str:
    voters = len(observed.membership.voters)
    message = f"the group has {voters} voters; spec.replicas is {observed.replicas}"
    if to_add:
        message += f"; to add: {', '.join(to_add)}"
    if to_remove:
        message += f"; to remove: {', '.join(to_remove)}"
    return message
