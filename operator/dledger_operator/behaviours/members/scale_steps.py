"""The next step from the members that a group has to those that its spec asks for. Pure.

Growing:    more pods, which belong to nobody; then one member after another, by ordinal, is added
            as a learner, and promoted once the leader finds that it has nearly all.
Shrinking:  the leadership goes to a member that stays; then the member with the highest ordinal is
            removed; when that is committed, and a leader that has just proved itself says so, its
            pod goes.

There is no memory between steps: each follows from what the members say now, so another operator
can take the next one, and a spec that is changed back in the midst is just another goal. Whether a
change is safe the leader judges; it takes one at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from dledger_formats.http.status import NodeStatus
from dledger_formats.protocol.membership_change import ChangeKind
from dledger_formats.settings import GroupState
from dledger_operator import names
from dledger_operator.facts import Electorate, Leader
from dledger_operator.spec.shape import Shape

NO_LEADER: Final = "NoLeader"
CHANGE_UNDER_WAY: Final = "ChangeUnderWay"
NO_SUCCESSOR: Final = "NoSuccessor"
MEMBER_STARTING: Final = "MemberStarting"
MEMBER_SILENT: Final = "MemberSilent"
PODS_OUTDATED: Final = "PodsOutdated"
_REPLACE: Final = "replace the pods, one at a time and the leader's last (kubectl delete pod)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPods:
    """Let the StatefulSet have so many pods."""

    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeMember:
    """Ask the leader for a change; a member that was removed takes its pod with it."""

    kind: ChangeKind
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Ask the leader to hand over."""

    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing can be done now."""

    reason: str
    message: str


Step: TypeAlias = SetPods | ChangeMember | Transfer | Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known when a step is decided on."""

    replicas: int
    """What the spec asks for."""
    shape: Shape
    """As it was applied, with the StatefulSet's replicas as they are now."""
    leader: Leader | None
    electorate: Electorate
    """As a leader said last; it may be long ago."""
    answers: Mapping[str, NodeStatus]
    """Of every member that answers, by its id."""

    @property
    def leading(self) -> NodeStatus | None:
        """The leader's own word; None of one that is not proven, or knows no membership."""
        answer = self.answers.get(self.leader.member_id) if self.leader else None
        proven = answer and self.leader and answer.master and answer.term == self.leader.term
        return answer if proven else None


def next_step(seen: Seen) -> Step | None:
    """Decide; None when all is as the spec asks, as far as can be known."""
    if seen.shape.pods > names.REPLICAS_MAX:  # no settings name these
        return SetPods(replicas=names.REPLICAS_MAX)
    leading = seen.leading
    if leading is None:
        return _without_leader(seen)
    if not leading.voters:
        return _of_an_earlier_version(seen, leading)
    members = {*leading.voters, *leading.learners}
    if seen.shape.pods < _last(members):
        return SetPods(replicas=_last(members))
    if leading.membership_index > leading.committed_index:
        return Wait(reason=CHANGE_UNDER_WAY, message="the last change is not committed yet")
    if max(seen.shape.pods, _last(members)) > seen.replicas:
        return _shrink(seen, leading)
    return _grow(seen, leading)


def _without_leader(seen: Seen) -> Step | None:
    """Bring back the pods of members that somebody took; all else needs a leader."""
    members = seen.electorate.voters | seen.electorate.learners
    pods = max(_last(members), min(seen.replicas, seen.shape.first_voters))
    if seen.shape.pods < pods:
        return SetPods(replicas=pods)
    if seen.shape.pods == seen.replicas:
        return None
    return Wait(reason=NO_LEADER, message="there is no leader, who alone can change the members")


def _of_an_earlier_version(seen: Seen, leading: NodeStatus) -> Step | None:
    if seen.shape.pods == seen.replicas:
        return None
    return Wait(
        reason=PODS_OUTDATED,
        message=f"{leading.self_id} leads, and its version knows no changes of members: {_REPLACE}",
    )


def _shrink(seen: Seen, leading: NodeStatus) -> Step:
    if names.ordinal(leading.self_id) >= seen.replicas:
        return _hand_over(seen, leading)
    last = max(seen.shape.pods, _last({*leading.voters, *leading.learners})) - 1
    return ChangeMember(kind=ChangeKind.REMOVE, member_id=names.member_id(last))


def _hand_over(seen: Seen, leading: NodeStatus) -> Step:
    """To the one that stays and has most, which takes the least time."""
    staying = [
        peer
        for peer in leading.followers
        if peer.peer_id in leading.voters
        and peer.reachable
        and names.ordinal(peer.peer_id) < seen.replicas
    ]
    if staying:
        return Transfer(to=max(staying, key=lambda peer: peer.match_index).peer_id)
    return Wait(
        reason=NO_SUCCESSOR,
        message=f"{leading.self_id} leads and is to go, and reaches no voter that stays",
    )


def _grow(seen: Seen, leading: NodeStatus) -> Step | None:
    wanted = [names.member_id(ordinal) for ordinal in range(seen.replicas)]
    joining = [member_id for member_id in wanted if member_id not in leading.voters]
    if joining and (obstacle := _obstacle(seen, leading, joining)):
        return obstacle
    if seen.shape.pods < seen.replicas:
        return SetPods(replicas=seen.replicas)
    if not joining:
        return None
    first = joining[0]
    if first in leading.learners:
        return ChangeMember(kind=ChangeKind.PROMOTE, member_id=first)
    if first not in seen.answers:
        return Wait(reason=MEMBER_STARTING, message=f"{first} does not answer yet")
    return ChangeMember(kind=ChangeKind.ADD_LEARNER, member_id=first)


def _obstacle(seen: Seen, leading: NodeStatus, joining: list[str]) -> Wait | None:
    """Every voter must know every member: one that does not would not obey its leader, and a new
    leader without its address could not send to it.
    """
    if seen.shape.state is GroupState.NEW:
        return Wait(reason=NO_LEADER, message="the group's founding is not noted yet")
    silent = [voter_id for voter_id in leading.voters if voter_id not in seen.answers]
    if silent:
        message = f"no answer from {', '.join(silent)}; a group grows while all voters are there"
        return Wait(reason=MEMBER_SILENT, message=message)
    outdated = [
        voter_id
        for voter_id in leading.voters
        if not set(joining) <= _known_to(seen.answers[voter_id])
    ]
    if outdated:
        return Wait(
            reason=PODS_OUTDATED,
            message=f"{', '.join(outdated)} started with settings that do not name "
            f"{', '.join(joining)}: {_REPLACE}",
        )
    return None


def _known_to(answer: NodeStatus) -> set[str]:
    return {*answer.voters, *answer.learners, *answer.addable}


def _last(member_ids: set[str] | frozenset[str]) -> int:
    """How many pods there must be for all of these to have one."""
    return 1 + max((names.ordinal(member_id) for member_id in member_ids), default=-1)
