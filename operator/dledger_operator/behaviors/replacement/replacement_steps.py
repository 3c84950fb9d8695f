"""Decides the next step of one replacement of a lost member's volume. Pure.

The member keeps its id and its membership. It gets an empty volume, and its node does the rest: a
member that starts without its promises joins, which means that it takes the leader's log and votes
only once it has everything that the leader had (`dledger_node.raft.joining`).

Nothing that is acknowledged may depend on the volume that is removed. So a majority of the voters
without the member must serve right before the removal, and each of them must have every entry that
the leader calls committed. A member that serves, or that is joining already, is not lost.

The uid of the volume claim is recorded before the claim is deleted, and only that claim is deleted.
The claim is deleted first and the pod second, because the StatefulSet would recreate the pod with
the old claim. Kubernetes keeps the claim until the pod has ended. After the timeout of the
replacement, the claim stays: somebody may consider the replacement failed, and repair the volume.
The operator never removes a pod whose end no kubelet has confirmed: its member may still run, and
two members with one id would have two votes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dledger_formats.http.status import NodeStatus
from dledger_formats.protocol.leadership_transfer import TRANSFER_LAG_ENTRIES_MAX
from dledger_operator import reasons
from dledger_operator.api_objects import PodView, VolumeClaimView
from dledger_operator.behaviors.handover.candidates import MEMBER_LEAVING, NOT_A_VOTER
from dledger_operator.behaviors.members import stuck_pods
from dledger_operator.behaviors.one_off.steps import TIMED_OUT, Begin, End
from dledger_operator.behaviors.steps import Wait
from dledger_operator.problem import Problem
from dledger_operator.spec.replace_request import ReplaceRequest

REPLACED: Final = "Replaced"
OTHER_REPLACEMENT: Final = "OtherReplacement"
NOT_A_MEMBER: Final = "NotAMember"
MEMBER_SERVES: Final = "MemberServes"
MEMBER_JOINING: Final = "MemberJoining"
STATEFUL_SET_MISSING: Final = "StatefulSetMissing"
CLAIM_TERMINATING: Final = "ClaimTerminating"
NEW_VOLUME: Final = "NewVolume"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceState:
    """The input of the decision on the next step."""

    request: ReplaceRequest
    first: str
    """The name of an earlier replacement that goes first; empty if there is none."""
    begun: bool
    """Whether the beginning is recorded."""
    claim_uid: str | None
    """The recorded uid of the claim to delete; empty if the member had no claim, None while
    nothing is recorded.
    """
    has_volume: bool
    """Whether the new volume is recorded."""
    elapsed_s: float
    """Time since the recorded beginning."""
    group_exists: bool
    group_invalid: str
    """Why the group's spec is invalid; empty if it is not."""
    paused: bool
    hibernate: bool
    asleep: bool
    """Whether the group is to hibernate and its StatefulSet makes no pods."""
    has_stateful_set: bool
    """Whether the group's StatefulSet exists, and is not being deleted."""
    staying: Sequence[str]
    """The members that the spec asks for."""
    pod: PodView | None
    """The member's pod."""
    node_ready: bool | None = None
    """Whether the Node of that pod is Ready; None if it is not known."""
    claim: VolumeClaimView | None
    """The member's volume claim."""
    leading: NodeStatus | None
    """The answer of the proven leader of the highest term."""
    answers: Mapping[str, NodeStatus]
    """The members' own answers, by member id."""

    @property
    def answer(self) -> NodeStatus | None:
        """The answer of the member itself; None without one."""
        return self.answers.get(self.request.member)

    @property
    def is_late(self) -> bool:
        """Whether the timeout has passed."""
        return self.elapsed_s >= self.request.timeout_s

    @property
    def is_removed(self) -> bool:
        """Whether the member's claim is gone, or is being deleted and cannot be kept."""
        if self.claim_uid is None:
            return False
        return self.claim is None or self.claim.leaving or self.claim.uid != self.claim_uid


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordClaim:
    """Record the claim that is to be deleted; None if the member has none."""

    claim: VolumeClaimView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteClaim:
    """Delete the recorded claim."""

    claim: VolumeClaimView


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePod:
    """Remove the pod that still uses the deleted claim."""

    pod: PodView


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordVolume:
    """Record that the member has a new volume."""

    claim: VolumeClaimView


Step: TypeAlias = Begin | RecordClaim | DeleteClaim | RemovePod | RecordVolume | Wait | End


def next_step(state: ReplaceState) -> Step:
    """Return the next step of a replacement that has not ended."""
    request = state.request
    if state.first and not state.begun:
        message = f"{state.first} is another replacement in the group and goes first"
        return Wait(Problem(reason=OTHER_REPLACEMENT, message=message))
    if not state.begun:
        return Begin(message="checks the group")
    if not state.group_exists:
        message = f"{request.namespace}/{request.group_name} does not exist"
        return End(succeeded=False, reason=reasons.GROUP_NOT_FOUND, message=message)
    step = _after_removal(state) if state.is_removed else _before_removal(state)
    if isinstance(step, Wait):
        return in_time(state, step)
    if isinstance(step, RecordClaim | DeleteClaim) and state.is_late:
        why = f"the check after which the volume of {request.member} may go succeeded only later"
        return _timed_out(state, why)
    return step


def in_time(state: ReplaceState, wait: Wait) -> Wait | End:
    """Return `wait`, or the end if the timeout has passed."""
    return _timed_out(state, wait.message) if state.is_late else wait


def _before_removal(state: ReplaceState) -> Step:
    """Check everything right before the deletion: until then, nothing has been removed."""
    if refusal := _refusal(state):
        return End(succeeded=False, reason=refusal.reason, message=refusal.message)
    if not state.has_stateful_set:
        message = "the StatefulSet is being made again"
        return Wait(Problem(reason=STATEFUL_SET_MISSING, message=message))
    if state.leading is None:
        message = "no member leads, so nothing shows that the others have every entry"
        return Wait(Problem(reason=reasons.NO_LEADER, message=message))
    member = state.request.member
    if state.answer is None and state.leading.lacks_committed(member) is not None:
        message = (
            f"the leader reaches {member}, although its page does not answer the operator; it is "
            "not lost, so find out what keeps the operator from it"
        )
        return Wait(Problem(reason=MEMBER_SERVES, message=message))
    if state.claim_uid is None or state.claim is None:
        return RecordClaim(claim=state.claim)
    return DeleteClaim(claim=state.claim)


def _after_removal(state: ReplaceState) -> Step:
    member, claim = state.request.member, state.claim
    if member not in state.staying:
        message = f"{member} is to be removed: spec.replicas asks for {len(state.staying)} members"
        return End(succeeded=False, reason=MEMBER_LEAVING, message=message)
    if state.paused:
        return Wait(Problem(reason=reasons.PAUSED, message="spec.paused is true; resume the group"))
    # Until then, hibernation waits for this member to be ready.
    if state.asleep:
        message = "spec.hibernate is true; wake the group"
        return Wait(Problem(reason=reasons.HIBERNATED, message=message))
    if pod := _pod_in_the_way(state):
        return _remove_pod(state, pod)
    if claim is not None and claim.uid == state.claim_uid:
        message = f"volume claim {claim.name} is being deleted"
        return Wait(Problem(reason=CLAIM_TERMINATING, message=message))
    if claim is None or not claim.volume or claim.problem:
        why = claim.problem.message if claim and claim.problem else "the StatefulSet makes a claim"
        return Wait(Problem(reason=NEW_VOLUME, message=f"{member} gets a new volume: {why}"))
    if not state.has_volume:
        return RecordVolume(claim=claim)
    return _join(state, claim)


def _pod_in_the_way(state: ReplaceState) -> PodView | None:
    """Return the member's pod if it was made for a claim that is being deleted or is gone.

    Somebody may have deleted the claim without its pod. The StatefulSet makes a claim before the
    pod, and Kubernetes binds it before it chooses the pod's node. The claim was read after the pod.
    """
    pod, claim = state.pod, state.claim
    if pod is None or claim is None or claim.uid == state.claim_uid:
        return pod
    return pod if pod.node and not claim.volume else None


def _remove_pod(state: ReplaceState, pod: PodView) -> Step:
    """Remove the pod: until it is gone, Kubernetes keeps the deleted claim, and the StatefulSet
    cannot make a new one.
    """
    if pod.leaving:
        message = f"{stuck_pods.where(pod)} is terminating. "
        message += stuck_pods.cure(pod, state.node_ready)
        return Wait(Problem(reason=stuck_pods.POD_TERMINATING, message=message))
    # Its volume cannot be kept any more, but the member has come back and may be needed for now.
    if pod.ready and (risk := quorum_risk(state)):
        return Wait(risk)
    return RemovePod(pod=pod)


def _join(state: ReplaceState, claim: VolumeClaimView) -> Step:
    """Wait until the member has joined and has nearly all entries."""
    member, answer, leading, pod = state.request.member, state.answer, state.leading, state.pod
    if pod is None or pod.leaving or answer is None:
        why = f": {pod.problem.message}" if pod and pod.problem else ""
        message = f"{member} does not answer yet{why}"
        return Wait(Problem(reason=reasons.POD_STARTING, message=message))
    if answer.joining or not answer.ready or not pod.ready:
        why = answer.reason or "it does not serve its role yet"
        return Wait(Problem(reason=MEMBER_JOINING, message=f"{member} joins again: {why}"))
    if leading is None:
        return Wait(Problem(reason=reasons.NO_LEADER, message="no member leads"))
    if member not in leading.voters:
        return Wait(Problem(reason=NOT_A_VOTER, message=f"{member} is no voter of the group yet"))
    lacks = leading.lacks_committed(member)
    if lacks is None or lacks > TRANSFER_LAG_ENTRIES_MAX:
        known = "an unknown number of" if lacks is None else str(lacks)
        allowed = TRANSFER_LAG_ENTRIES_MAX
        message = f"{member} lacks {known} committed entries, and may lack {allowed}"
        return Wait(Problem(reason=reasons.MEMBER_LAGS, message=message))
    message = f"{member} has the new volume {claim.volume} and votes again"
    return End(succeeded=True, reason=REPLACED, message=message)


def _timed_out(state: ReplaceState, why: str) -> End:
    request = state.request
    within = f"within {request.timeout_s:g} s"
    if state.is_removed:
        pod = _pod_in_the_way(state)
        follows = (
            f"; once the other members are whole, delete pod {pod.name}, which still uses the "
            "removed volume, or create another replacement"
            if pod and not pod.leaving
            else ", and the member joins as soon as it can"
        )
        happens = (
            f"{request.member} did not get a new volume and join {within}; what was removed stays "
            f"removed{follows}"
        )
    else:
        happens = f"the replacement could not begin {within}; nothing was removed"
    return End(succeeded=False, reason=TIMED_OUT, message=f"{happens}: {why}")


def _refusal(state: ReplaceState) -> Problem | None:
    """Return why nothing may be removed; None if the member's volume may be removed, as far as is
    known without a leader.
    """
    member, answer, leading = state.request.member, state.answer, state.leading
    if state.group_invalid:
        message = f"the spec of the group is invalid: {state.group_invalid}"
        return Problem(reason=reasons.GROUP_INVALID, message=message)
    if state.paused:
        message = "spec.paused is true, so the operator changes nothing; resume the group first"
        return Problem(reason=reasons.PAUSED, message=message)
    if state.hibernate:
        message = "spec.hibernate is true, so the group has no pods, or none soon; wake it first"
        return Problem(reason=reasons.HIBERNATED, message=message)
    if member not in state.staying:
        message = f"{member} is no member: spec.replicas asks for {len(state.staying)}"
        return Problem(reason=NOT_A_MEMBER, message=message)
    if leading is None:
        return None
    if leading.membership_index > leading.committed_index:
        message = "a change of members is not committed yet; try again when Progressing is False"
        return Problem(reason=reasons.MEMBERSHIP_CHANGING, message=message)
    if member not in leading.voters:
        message = f"{member} is no voter, so scaling adds it; Progressing says what it waits for"
        return Problem(reason=NOT_A_VOTER, message=message)
    if answer is not None and answer.ready:
        message = (
            f"{member} serves, so it is not lost, and its volume was left alone; to move it to "
            "another node, drain its node"
        )
        return Problem(reason=MEMBER_SERVES, message=message)
    if answer is not None and answer.joining:
        message = f"{member} is joining again already, with an empty volume: {answer.reason}"
        return Problem(reason=MEMBER_JOINING, message=message)
    return quorum_risk(state)


def quorum_risk(state: ReplaceState) -> Problem | None:
    """Return why the group would not be whole without the member: a majority of the voters must
    serve and have every committed entry. None if it would.
    """
    leading, member = state.leading, state.request.member
    if leading is None:
        return Problem(reason=reasons.NO_LEADER, message="no member leads")
    others = [voter for voter in leading.voters if voter != member]
    lacking = {voter: why for voter in others if (why := _why_not_whole(state, leading, voter))}
    needed = len(leading.voters) // 2 + 1
    if len(others) - len(lacking) >= needed:
        return None
    whole = [voter for voter in others if voter not in lacking]
    listed = f"only {', '.join(whole)} would be" if whole else "nobody would be"
    lack = "; ".join(lacking.values()) or f"{', '.join(leading.voters)} is the only voter"
    message = (
        f"without {member}, {listed} whole, and {needed} of {len(leading.voters)} voters must be: "
        f"{lack}. Repair the other members first. If a majority is lost for good, see "
        '"After the loss of a majority" in the operations guide'
    )
    return Problem(reason=reasons.QUORUM_AT_RISK, message=message)


def _why_not_whole(state: ReplaceState, leading: NodeStatus, voter: str) -> str:
    """Return why a voter does not serve with every committed entry; empty if it does."""
    answer, lacks = state.answers.get(voter), leading.lacks_committed(voter)
    if answer is None:
        return f"{voter} does not answer"
    if answer.joining or not answer.ready:
        return f"{voter} is not ready ({answer.reason or 'it does not serve its role yet'})"
    if lacks is None:
        return f"the leader does not reach {voter}"
    return f"{voter} lacks {lacks} committed entries" if lacks else ""
