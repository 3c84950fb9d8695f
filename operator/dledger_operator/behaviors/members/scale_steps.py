"""Decides the next step from a group's current members to those that its spec asks for. Pure.

Scaling up:    create the pods, which are not members yet. Then, one member at a time by ordinal,
               add it as a learner, and promote it once it has caught up with the leader.
Scaling down:  transfer the leadership to a member that stays. Then remove the member with the
               highest ordinal, and delete its pod once a proven leader reports that the removal is
               committed. After that, delete its volume claim if the spec says so.

Hibernating:   once nothing of the above is left to do, remove all pods, if every voter is ready and
               has nearly all entries. The members stay voters and their volumes stay, so waking up
               only restores missing pods, and founds no group again.

No state is kept between steps: each step depends only on the members' current status. So another
operator can take the next step, and a spec that changes during scaling is simply a new target. The
leader decides whether a change is safe, and accepts one change at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dledger_formats.http.status import NodeStatus, PeerStatus
from dledger_formats.protocol.leadership_transfer import TRANSFER_LAG_ENTRIES_MAX
from dledger_formats.protocol.membership_change import ChangeKind
from dledger_formats.settings import GroupState
from dledger_operator import names, reasons
from dledger_operator.behaviors.founding import founded_again
from dledger_operator.behaviors.founding.empty_members import never_elected
from dledger_operator.behaviors.founding.founded_again import Unbegun
from dledger_operator.behaviors.members.steps import ChangeMember, DeleteClaims, Step
from dledger_operator.behaviors.steps import HandOver, SetPods, Wait
from dledger_operator.observed_state import Leader, Membership
from dledger_operator.problem import Problem
from dledger_operator.spec.shape import Shape

CHANGE_UNDER_WAY: Final = "ChangeUnderWay"
MEMBER_STARTING: Final = "MemberStarting"
PODS_OUTDATED: Final = "PodsOutdated"
HIBERNATION_LAG_ENTRIES_MAX: Final = TRANSFER_LAG_ENTRIES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleState:
    """The state of a group that determines the next step."""

    replicas: int
    """`spec.replicas`."""
    shape: Shape
    """The shape that was last applied, with the current replicas of the StatefulSet."""
    leader: Leader | None
    membership: Membership
    """The membership that a leader last reported, possibly long ago."""
    answers: Mapping[str, NodeStatus]
    """The status of every member that answers, by member id."""

    unwanted_claims: frozenset[int] = frozenset()
    """Ordinals of volume claims without a pod, if `storage.retain.whenScaled` is Delete."""

    hibernate: bool = False
    """`spec.hibernate`."""
    rolling: bool = False
    """Whether pods are to be replaced."""
    roll_halt: Problem | None = None
    """Why no pod is replaced before somebody acts or a window opens."""
    held_back: Problem | None = None
    """Why no member may be removed yet. Pods that are not members may be removed."""
    emptied: frozenset[str] = frozenset()
    """The members on nodes that are being emptied."""
    refusals: Mapping[str, int] = field(default_factory=dict)
    """How often the leader has refused to hand over to each member, by member id."""
    unbegun: Unbegun | None = None
    """None unless the group never had a leader, as far as is known, and is to begin with fewer
    first voters.
    """
    absent_s: float = 0.0
    """See `founded_again.Watch.absent_s`."""

    @property
    def leading(self) -> NodeStatus | None:
        """The proven leader's own status; None without a leader or without its answer."""
        answer = self.answers.get(self.leader.member_id) if self.leader else None
        proven = answer and self.leader and answer.master and answer.term == self.leader.term
        return answer if proven else None


def next_step(state: ScaleState) -> Step | None:
    """Return the next step; None if the group matches the spec, as far as is known."""
    if state.hibernate and state.shape.pods == 0:
        return None
    if state.shape.pods > names.REPLICAS_MAX:  # the members' settings have no such ids
        return SetPods(replicas=names.REPLICAS_MAX)
    leading = state.leading
    if leading is None:
        return _without_leader(state)
    members = {*leading.voters, *leading.learners}
    if state.shape.pods < _pods_needed(members):
        return SetPods(replicas=_pods_needed(members))
    if leading.membership_index > leading.committed_index:
        message = "the last membership change is not committed yet"
        return Wait(Problem(reason=CHANGE_UNDER_WAY, message=message))
    if max(state.shape.pods, _pods_needed(members)) > state.replicas:
        return _shrink(state, leading)
    step = _grow(state, leading)
    return _hibernate(state, leading) if step is None and state.hibernate else step


def _hibernate(state: ScaleState, leading: NodeStatus) -> Step:
    """Remove all pods, unless a voter would miss entries that only others have now.

    A majority has every acknowledged entry on its disks, whatever happens while pods end. But a
    group that sleeps repairs nothing, so it should not depend on that majority for months.
    """
    statuses = {each: state.answers.get(each) for each in leading.voters}
    if silent := [each for each, answer in statuses.items() if answer is None]:
        message = f"no answer from {', '.join(silent)}; hibernation needs one from all voters"
        return Wait(Problem(reason=reasons.MEMBER_SILENT, message=message))
    unready = [each for each, answer in statuses.items() if answer and not answer.ready]
    if unready:
        message = f"{', '.join(unready)} is not ready; hibernation needs all voters to be"
        return Wait(Problem(reason=reasons.MEMBER_NOT_READY, message=message))
    lacking = {
        peer.peer_id: leading.lacks_committed(peer.peer_id, last_known=True) or 0
        for peer in leading.followers
        if peer.peer_id in statuses
    }
    if late := [each for each, lacks in lacking.items() if lacks > HIBERNATION_LAG_ENTRIES_MAX]:
        message = f"{', '.join(late)} lacks more than {HIBERNATION_LAG_ENTRIES_MAX} entries"
        return Wait(Problem(reason=reasons.MEMBER_LAGS, message=message))
    if state.rolling and (halt := state.roll_halt):
        message = f"pods are to be replaced before the group hibernates; {halt.message}"
        return Wait(Problem(reason=halt.reason, message=message))
    if state.rolling:
        message = "pods are being replaced; the group hibernates afterwards"
        return Wait(Problem(reason=reasons.ROLL_UNDER_WAY, message=message))
    return SetPods(replicas=0)


def _without_leader(state: ScaleState) -> Step | None:
    """Found the group again if it is to begin with fewer first voters, or restore missing pods of
    members. Every other step needs a leader.
    """
    if state.unbegun and not state.hibernate:
        return founded_again.next_step(
            state.replicas,
            state.shape,
            state.unbegun,
            state.answers,
            absent_s=state.absent_s,
        )
    members = state.membership.voters | state.membership.learners
    pods = max(_pods_needed(members), min(state.replicas, state.shape.first_voters))
    if state.shape.pods < pods:
        return SetPods(replicas=pods)
    wanted = {names.member_id(ordinal) for ordinal in range(state.replicas)}
    settled = state.shape.pods == state.replicas and members == wanted == state.membership.voters
    if settled and not state.hibernate:
        return None
    message = "membership changes and hibernation need a leader, and there is none"
    first = state.shape.first_voters
    is_new = state.shape.state is GroupState.NEW and never_elected(state.answers, first)
    if is_new and first < state.replicas:
        # Its members may elect a leader at any moment, so the first voters stay as recorded.
        message += (
            f"; the group has not begun: it begins with {first} members once all of them run, and "
            f"grows to {state.replicas} afterwards"
        )
    return Wait(Problem(reason=reasons.NO_LEADER, message=message))


def _shrink(state: ScaleState, leading: NodeStatus) -> Step:
    members = {*leading.voters, *leading.learners}
    if state.held_back and any(names.ordinal(each) >= state.replicas for each in members):
        return Wait(state.held_back)
    if names.ordinal(leading.self_id) >= state.replicas:
        return _transfer(state, leading)
    last = max(state.shape.pods, _pods_needed(members)) - 1
    return ChangeMember(kind=ChangeKind.REMOVE, member_id=names.member_id(last))


def _transfer(state: ScaleState, leading: NodeStatus) -> Step:
    """Transfer to the remaining voter with the highest match index, which is the fastest.

    A voter that does not serve would not stand for election, and the leader takes no appends while
    it waits for that. A voter on a node that is being emptied would have to hand over again, so it
    comes last. The leader may have refused to hand over to one, so the others come first the next
    time.
    """
    staying = [
        peer
        for peer in leading.followers
        if peer.peer_id in leading.voters and names.ordinal(peer.peer_id) < state.replicas
    ]
    unable = {peer.peer_id: why for peer in staying if (why := _why_unable(state, peer))}
    if able := [peer for peer in staying if peer.peer_id not in unable]:

        def rank(peer: PeerStatus) -> tuple[int, bool, int]:
            refusals = state.refusals.get(peer.peer_id, 0)
            return (-refusals, peer.peer_id not in state.emptied, peer.match_index)

        best = max(able, key=rank)
        return HandOver(leader_id=leading.self_id, to=best.peer_id)
    message = (
        f"{leading.self_id} is to be removed but is the leader, and no voter that stays could take "
        f"over: {'; '.join(unable.values()) or 'there is none'}"
    )
    return Wait(Problem(reason=reasons.NO_SUCCESSOR, message=message))


def _why_unable(state: ScaleState, peer: PeerStatus) -> str:
    """Return why a voter could not take over the leadership; empty if it could."""
    answer = state.answers.get(peer.peer_id)
    if not peer.reachable:
        return f"the leader does not reach {peer.peer_id}"
    if answer is None:
        return f"{peer.peer_id} does not answer"
    if peer.full or not answer.ready:
        return f"{peer.peer_id} is not ready" + (f": {answer.reason}" if answer.reason else "")
    return ""


def _grow(state: ScaleState, leading: NodeStatus) -> Step | None:
    wanted = [names.member_id(ordinal) for ordinal in range(state.replicas)]
    to_add = [member_id for member_id in wanted if member_id not in leading.voters]
    if to_add and (blocker := _growth_blocker(state, leading, to_add)):
        return blocker
    if state.shape.pods < state.replicas:
        return SetPods(replicas=state.replicas)
    if not to_add:
        return _delete_claims(state, members={*leading.voters, *leading.learners})
    first = to_add[0]
    if first in leading.learners:
        return ChangeMember(kind=ChangeKind.PROMOTE, member_id=first)
    if first not in state.answers:
        return Wait(Problem(reason=MEMBER_STARTING, message=f"{first} does not answer yet"))
    return ChangeMember(kind=ChangeKind.ADD_LEARNER, member_id=first)


def _delete_claims(state: ScaleState, members: set[str]) -> DeleteClaims | None:
    """Delete the claims of ordinals that neither the group nor its spec nor a pod uses.

    A proven leader has just reported `members`, and that its last change is committed.
    """
    removed = frozenset(
        ordinal
        for ordinal in state.unwanted_claims
        if ordinal >= max(state.replicas, state.shape.pods)
        and names.member_id(ordinal) not in members
    )
    return DeleteClaims(ordinals=removed) if removed else None


def _growth_blocker(state: ScaleState, leading: NodeStatus, to_add: list[str]) -> Wait | None:
    """Check that the group is founded and that every voter knows the new members' addresses.

    A voter without the address of a new member would neither follow it as a leader nor replicate
    to it.
    """
    if state.shape.state is GroupState.NEW:
        message = "the group's founding is not recorded yet"
        return Wait(Problem(reason=reasons.NO_LEADER, message=message))
    silent = [voter_id for voter_id in leading.voters if voter_id not in state.answers]
    if silent:
        message = f"no answer from {', '.join(silent)}; scaling up needs an answer from all voters"
        return Wait(Problem(reason=reasons.MEMBER_SILENT, message=message))
    outdated = [
        voter_id
        for voter_id in leading.voters
        if not set(to_add) <= _known_to(state.answers[voter_id])
    ]
    if outdated:
        message = (
            f"{', '.join(outdated)} started with settings that do not name "
            f"{', '.join(to_add)}; set spec.restartedAt to the current time: the operator then "
            "replaces them one at a time"
        )
        return Wait(Problem(reason=PODS_OUTDATED, message=message))
    return None


def _known_to(answer: NodeStatus) -> set[str]:
    return {*answer.voters, *answer.learners, *answer.addable}


def _pods_needed(member_ids: set[str] | frozenset[str]) -> int:
    """Return the number of replicas with which all these members have a pod."""
    return 1 + max((names.ordinal(member_id) for member_id in member_ids), default=-1)
