"""Decides which pods a roll replaces, in which order, and the next single step. Pure.

When a pod is deleted, the StatefulSet recreates it from its current template. Pods that are not
of the wanted revision are replaced in this order: those that do not run or are not healthy, then
followers, the leader last, after it has handed over.

A healthy member is replaced only while enough others are healthy, and only once every pod that is
already of the wanted revision has been ready for a while and has nearly all entries. So a revision
with which a member does not become ready costs one pod. The roll then halts until the pod is ready
or the spec is corrected: at once if Kubernetes says why the pod does not start, or else after
minutes. A pod whose container does not run can be replaced without a leader: the member is down
anyway. So can running members that are enough to elect a leader but have long not elected one: the
group commits nothing as it is, and each log is on its volume. They are replaced one at a time,
until those of the wanted revision are a majority and elect a leader.

A pod that was made from the current template and still differs from it would differ again: somebody
else, for example an admission webhook, changes new pods. The roll halts and names the pod.

No state is kept between steps: each depends only on the pods and their members' current answers. So
another operator can take the next step, and a spec that changes meanwhile is a new target.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dledger_operator import names, reasons
from dledger_operator.behaviors.rolls.roll_state import RollPod, RollState
from dledger_operator.behaviors.steps import HandOver, Wait
from dledger_operator.conditions import cures
from dledger_operator.problem import Problem

ELECTIONS_MIN: Final = 5
"""How many election timeouts members get at least to elect a leader before any is replaced."""
LATE_S_MIN: Final = 300.0
"""A pod that is not ready after this time does not just start."""
_LATE: Final = f"{LATE_S_MIN / 60:g} minutes"
REFUSED_S_MIN: Final = 10.0
"""A quota counts a pod that was just removed until its controller has seen the removal."""

ROLL_HALTED: Final = "RollHalted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacePod:
    """Delete a pod, so that it is recreated."""

    pod: str
    uid: str
    why: str


Step: TypeAlias = ReplacePod | HandOver | Wait


def in_order(state: RollState) -> list[RollPod]:
    """Return the pods that are to be replaced, in the order of their replacement."""
    behind = [pod for pod in state.pods if pod.behind]

    def rank(pod: RollPod) -> tuple[bool, bool, bool, int]:
        leads = pod.runs and pod.member_id == state.leader_id
        return (leads, pod.runs, pod.healthy, -names.ordinal(pod.member_id))

    return sorted(behind, key=rank)


def next_step(state: RollState) -> Step | None:
    """Return the next step; None if no pod is behind."""
    behind = in_order(state)
    if not behind:
        return None
    if altered := [pod for pod in behind if pod.altered]:
        return _stalled(altered)
    if not state.led:
        return _before_the_first_leader(behind)
    stopped = [pod for pod in behind if not (pod.runs or pod.leaving or pod.volume_leaving)]
    down = stopped[0] if stopped else None
    if down and _may_replace_what_is_down(state):
        return _replace(down)
    if stuck := _stuck(state, behind):
        return _replace(stuck)
    if blocker := _blocker(state):
        return blocker
    behind = [pod for pod in behind if not pod.leaving]  # a removed member's pod
    if not behind:
        message = "the pods of removed members are being deleted"
        return Wait(Problem(reason=reasons.POD_STARTING, message=message))
    first = behind[0]
    if first.volume_leaving and not _all_others_are_steady(state, first):
        message = (
            f"{first.name} is not replaced: its volume's claim was deleted, so the log would go "
            "with the pod, and not all other voters are healthy"
        )
        return Wait(Problem(reason=reasons.VOLUME_TERMINATING, message=message))
    if len(state.voters) > 1 and first.member_id == state.leader_id:
        return _hand_over(state, first)
    if len(state.voters) > 1 and first.member_id in state.voters:
        left = _able_besides(state, first)
        if len(left) < state.others_min:
            message = (
                f"{first.name} is not replaced: of the other voters only {len(left)} are healthy, "
                f"and {state.others_min} must be"
            )
            return Wait(Problem(reason=reasons.QUORUM_AT_RISK, message=message))
    return _replace(first)


def unproven(state: RollState) -> Wait | None:
    """Return which members do not serve although every pod is of the wanted revision; None if all
    do.
    """
    failing = [pod for pod in state.pods if pod.member_id in state.voters and not pod.healthy]
    return _unsteady(state, failing) if failing else _absent(state)


def _stalled(altered: Sequence[RollPod]) -> Wait:
    listed = "; ".join(f"{pod.name}: {pod.behind}" for pod in altered)
    message = (
        "pods were made from the current template and differ from it, so it would not help to "
        f"replace them again: {listed}; an admission webhook or somebody else changes their "
        f"annotations {names.REVISION_ANNOTATION} or {names.FOUNDING_ANNOTATION}: let it leave "
        "these as they are, then delete these pods one at a time"
    )
    return Wait(Problem(reason=reasons.STALLED, message=message))


def _stuck(state: RollState, behind: Sequence[RollPod]) -> RollPod | None:
    """Return a running member whose restart costs the group nothing; None if there is none.

    There is one if enough members run to elect a leader, and they have not elected one for long;
    but not if enough members of the wanted revision run to elect one, or if that revision does not
    run.
    """
    running = [pod for pod in state.pods if pod.runs and pod.member_id in state.voters]
    if state.leader_id is not None or len(running) < state.quorum:
        return None
    if any(pod.healthy or pod.unready_s < state.leaderless_s_min for pod in running):
        return None
    current = [pod for pod in running if not pod.behind]
    failing = any(not pod.behind and not pod.runs for pod in state.pods)
    leaving = any(pod.leaving for pod in state.pods if pod.member_id in state.voters)
    if failing or leaving or len(current) >= state.quorum:
        return None
    return next((pod for pod in behind if pod in running and not pod.volume_leaving), None)


def _all_others_are_steady(state: RollState, without: RollPod) -> bool:
    """Return whether there are other voters, and each has served its role for a while."""
    steady = {pod.member_id for pod in state.pods if pod.is_steady}
    others = state.voters - {without.member_id}
    return bool(others) and others <= steady


def _before_the_first_leader(behind: Sequence[RollPod]) -> Step:
    """Replace every pod that has nothing to lose; a member with entries has had a leader."""
    for pod in behind:
        if not pod.leaving and (not pod.runs or pod.blank):
            return _replace(pod)
    message = f"the group has had no leader yet; {behind[0].name} runs and does not say it is empty"
    return Wait(Problem(reason=reasons.NO_LEADER, message=message))


def _may_replace_what_is_down(state: RollState) -> bool:
    """Return whether a pod that does not run may be recreated from the wanted revision.

    If a pod of that revision does not run either, the revision is bad. If one is not ready, others
    wait for it, unless so many are down that it cannot become ready without them.
    """
    current = [pod for pod in state.pods if not pod.behind]
    if any(not pod.runs for pod in current):
        return False
    running = [pod for pod in state.pods if pod.runs and pod.member_id in state.voters]
    return all(pod.healthy for pod in current) or len(running) < state.quorum


def _blocker(state: RollState) -> Wait | None:
    """Return what a step that stops a running member must wait for."""
    # A pod whose member is no voter yet waits for scaling; it matters only if it does not start.
    judged = [
        pod
        for pod in state.pods
        if pod.member_id in state.voters or (pod.problem and not pod.leaving)
    ]
    unsteady = [pod for pod in judged if not pod.behind and not pod.is_steady]
    if unsteady:
        return _unsteady(state, unsteady)
    if leaving := [pod.name for pod in judged if pod.leaving]:
        message = f"{', '.join(leaving)} is being replaced"
        return Wait(Problem(reason=reasons.POD_STARTING, message=message))
    if absent := _absent(state):
        return absent
    if state.scaling:
        return Wait(Problem(reason=reasons.SCALING, message="members are being added or removed"))
    if state.leader_id is None:
        message = "no member leads; running members are left alone"
        return Wait(Problem(reason=reasons.NO_LEADER, message=message))
    return None


def _absent(state: RollState) -> Wait | None:
    absent = sorted(state.voters - {pod.member_id for pod in state.pods})
    if not absent:
        return None
    late = [each for each in absent if state.awaited_s.get(each, 0.0) >= REFUSED_S_MIN]
    if refused := [
        (f"the pod of {each}", state.refused[each]) for each in late if each in state.refused
    ]:
        return _halted(cures.listed(refused))
    named = f"the pod of {', '.join(absent)}"
    if any(state.awaited_s.get(each, 0.0) >= LATE_S_MIN for each in absent):
        return _halted(f"{named} has not existed for {_LATE}; see the StatefulSet's Events")
    message = f"{named} does not exist yet"
    return Wait(Problem(reason=reasons.POD_STARTING, message=message))


def _unsteady(state: RollState, pods: Sequence[RollPod]) -> Wait:
    if failed := [(pod.name, pod.problem) for pod in pods if pod.problem]:
        return _halted(cures.listed(failed))
    late = [pod for pod in pods if state.awaited_s.get(pod.member_id, 0.0) >= LATE_S_MIN]
    listed = ", ".join(
        pod.name + (f" ({pod.reason})" if pod.reason else "") for pod in late or pods
    )
    if late:
        return _halted(f"{listed} has not been ready for {_LATE}; see the container's log")
    message = f"waits for {listed} to be ready and to catch up"
    return Wait(Problem(reason=reasons.POD_STARTING, message=message))


def _halted(why: str) -> Wait:
    message = f"no further pod is replaced until these are ready or the spec changes: {why}"
    return Wait(Problem(reason=ROLL_HALTED, message=message))


def _hand_over(state: RollState, leader: RollPod) -> Step:
    """Choose the voter with the fewest missing entries; by then all of them are replaced.

    A voter on a node that is being emptied would have to hand over again, so it comes last. The
    leader may have refused to hand over to one, so the others come first the next time.
    """
    able = _able_besides(state, leader)
    if len(able) < state.others_min:
        message = (
            f"the leader {leader.name} does not hand over: only {len(able)} of the other voters "
            f"are healthy, and {state.others_min} must be"
        )
        return Wait(Problem(reason=reasons.NO_SUCCESSOR, message=message))

    def rank(pod: RollPod) -> tuple[int, bool, bool, bool, int, str]:
        refusals = state.refusals.get(pod.member_id, 0)
        # Scaling would take the leadership from a member that is to be removed, and hand it back.
        leaves = state.staying is not None and pod.member_id not in state.staying
        lag = pod.lag_entries or 0
        return (refusals, leaves, bool(pod.behind), pod.emptied, lag, pod.member_id)

    best = min(able, key=rank)
    return HandOver(leader_id=leader.member_id, to=best.member_id)


def _able_besides(state: RollState, without: RollPod) -> list[RollPod]:
    """Return the other voters that could commit entries without this one."""
    voters = state.voters - {without.member_id}
    return [
        pod for pod in state.pods if pod.has_entries and not pod.leaving and pod.member_id in voters
    ]


def _replace(pod: RollPod) -> ReplacePod:
    return ReplacePod(pod=pod.name, uid=pod.uid, why=pod.behind)
