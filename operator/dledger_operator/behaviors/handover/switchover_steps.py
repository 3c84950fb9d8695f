"""Decides the next step of one switchover. Pure.

A switchover waits until every earlier one of its group has ended. Then it begins: its target is
checked once, and refused with the reason if it cannot lead. The leader's id is recorded before the
leader is asked to hand over. From then on nothing is refused, since the transfer may be under way:
the operator asks again until the target leads, or until the timeout. It asks only while the
target could lead, because a leader takes no appends while it hands over.

Between steps, state is kept only in the object's status. So another operator can take the next
step. If it asks for the transfer a second time, it asks a leader that no longer leads, which
refuses.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from dledger_operator import reasons
from dledger_operator.behaviors.handover.candidates import MEMBER_MISSING, Candidates, lags
from dledger_operator.behaviors.one_off.steps import TIMED_OUT, Begin, End
from dledger_operator.behaviors.steps import HandOver, Wait
from dledger_operator.observed_state import Leader, ObservedEndpoints
from dledger_operator.problem import Problem
from dledger_operator.spec.switchover_request import SwitchoverRequest

ALREADY_LEADER: Final = "AlreadyLeader"
SWITCHED_OVER: Final = "SwitchedOver"
OTHER_SWITCHOVER: Final = "OtherSwitchover"
SERVICE_FOLLOWS: Final = "ServiceFollows"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchoverState:
    """The input of the decision on the next step."""

    request: SwitchoverRequest
    first: str
    """The name of an earlier switchover of the group that has not ended; empty if there is none."""
    begun: bool
    """Whether the beginning is recorded."""
    from_member: str
    """The recorded leader, which may have been asked to hand over; empty if none was."""
    elapsed_s: float
    """Time since the recorded beginning."""
    group_exists: bool
    paused: bool
    hibernate: bool
    candidates: Candidates
    moved_back: Problem | None
    """Why the operator would take the leadership from the target again; None if it would not."""
    endpoints: ObservedEndpoints | None
    """The endpoints of the master Service; None unless the target leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLeader:
    """Record the leader that will be asked to hand over."""

    leader: Leader


Step: TypeAlias = Begin | RecordLeader | HandOver | Wait | End


def next_step(state: SwitchoverState) -> Step:
    """Return the next step of a switchover that has not ended."""
    request, leader = state.request, state.candidates.leader
    if state.first:
        message = f"{state.first} is another switchover of the group and goes first"
        return Wait(Problem(reason=OTHER_SWITCHOVER, message=message))
    if not state.begun:
        return Begin(message="checks the target")
    if not state.group_exists:
        message = f"{request.namespace}/{request.group_name} does not exist"
        return End(succeeded=False, reason=reasons.GROUP_NOT_FOUND, message=message)
    if leader is not None and leader.member_id == request.target:
        return _led_by_target(state, leader)
    refusal = _refusal(state)
    if refusal and not state.from_member:
        return End(succeeded=False, reason=refusal.reason, message=refusal.message)
    if state.elapsed_s >= request.timeout_s:
        return _timed_out(state)
    if leader is None:
        message = "no member leads; waits for one to ask"
        return Wait(Problem(reason=reasons.NO_LEADER, message=message))
    if refusal:
        return Wait(refusal)
    if not state.from_member:
        return RecordLeader(leader=leader)
    return HandOver(leader_id=leader.member_id, to=request.target)


def _led_by_target(state: SwitchoverState, leader: Leader) -> Step:
    """Wait until the master Service has followed too."""
    request, endpoints = state.request, state.endpoints
    if endpoints is None or not endpoints.synced:
        why = endpoints.message if endpoints else "its endpoints are not known yet"
        if state.elapsed_s < request.timeout_s:
            message = f"{request.target} leads; the master Service follows: {why}"
            return Wait(Problem(reason=SERVICE_FOLLOWS, message=message))
        message = (
            f"{request.target} leads term {leader.term}, but the master Service has not followed "
            f"within {request.timeout_s:g} s: {why}"
        )
        return End(succeeded=False, reason=TIMED_OUT, message=message)
    if not state.from_member:
        message = f"{request.target} leads already, in term {leader.term}; nothing was changed"
        return End(
            succeeded=True, reason=ALREADY_LEADER, message=message, result={"term": leader.term}
        )
    message = f"the leadership moved from {state.from_member} to {request.target}"
    return End(succeeded=True, reason=SWITCHED_OVER, message=message, result={"term": leader.term})


def _timed_out(state: SwitchoverState) -> End:
    request, leader = state.request, state.candidates.leader
    leads = f"{leader.member_id} leads" if leader else "no member leads"
    cause = _target_problem(state)
    why = f"; {cause.message}" if cause else ""
    message = f"{request.target} did not lead within {request.timeout_s:g} s; {leads}{why}"
    return End(succeeded=False, reason=TIMED_OUT, message=message)


def _refusal(state: SwitchoverState) -> Problem | None:
    """Return why the leader is not asked; None if the target can lead, as far as is known without a
    leader.
    """
    if state.paused:
        message = (
            "spec.paused is true, so the operator changes nothing in the group; resume it first, "
            "or use the command `dledger transfer`"
        )
        return Problem(reason=reasons.PAUSED, message=message)
    if state.hibernate:
        message = "spec.hibernate is true, so the group has no pods, or none soon; wake it first"
        return Problem(reason=reasons.HIBERNATED, message=message)
    if state.candidates.leader is None:
        return None
    if state.candidates.membership_changing:
        message = "a change of members is not committed yet; try again when Progressing is False"
        return Problem(reason=reasons.MEMBERSHIP_CHANGING, message=message)
    return _target_problem(state) or state.moved_back or _roll_problem(state)


def _target_problem(state: SwitchoverState) -> Problem | None:
    request = state.request
    target = state.candidates.get(request.target)
    if target is None:
        message = f"{request.target} has no pod in {request.namespace}/{request.group_name}"
        return Problem(reason=MEMBER_MISSING, message=message)
    if target.problem:
        return target.problem
    return lags(target, request.lag_entries_max) if state.candidates.leader else None


def _roll_problem(state: SwitchoverState) -> Problem | None:
    """Return the problem of a target that a roll is about to replace, although a member could lead
    that it has already replaced.

    The roll would take the leadership from the target again. A roll that no replaced member can
    lead in has just begun or has halted; that may last until somebody corrects the spec.
    """
    target, entries_max = state.candidates.get(state.request.target), state.request.lag_entries_max
    replaced = [
        each.member_id
        for each in state.candidates.members
        if not (each.behind or each.problem or lags(each, entries_max))
    ]
    if target is None or not target.behind or not replaced:
        return None
    message = (
        f"pod {target.pod} is to be replaced by the roll that is under way, which would take the "
        f"leadership from {target.member_id} again; choose {' or '.join(sorted(replaced))}, or "
        "wait until the roll is done"
    )
    return Problem(reason=reasons.ROLL_UNDER_WAY, message=message)
