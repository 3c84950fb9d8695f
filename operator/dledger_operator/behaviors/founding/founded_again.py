"""Decides how a group that has not begun is founded again, with fewer first voters. Pure.

A group begins once all of its first voters run. If they cannot, `spec.replicas` may become smaller
until the first election: then the StatefulSet is recreated, with fewer first voters, over the same
volume claims. The volumes of a group that has begun must never get first voters that are no
majority of the earlier ones. So the operator first proves that the first founding has elected no
leader and never will:

1. It removes the pods that are not to vote first, but keeps a majority of the first voters, and
   waits until those pods are gone and nothing that they sent can still be in flight. As for a
   StatefulSet itself, a pod is gone when the API server says so: anyone who forces the deletion of
   a pod must make sure that it does not run.
2. It asks the members that it kept. Each must have promised nothing, not even a term, or have a
   volume claim that was never bound. They are a majority, so no leader was elected before. A leader
   elected later would be a kept member and would get all its votes after this point, also from kept
   members: a candidate saves its term before it asks for votes. A joining member votes for nobody
   until it has heard from each removed member since its own start (`dledger_node.raft.joining`);
   the same holds for a member whose first process starts after this point. So the others must be
   too few for a majority.
   As everywhere in Raft, all this holds unless volumes of a majority were lost before.
3. It deletes the StatefulSet that it has read, together with its pods. If its replicas had changed
   meanwhile, a removed member could be back; the API server then refuses the deletion. Once it is
   being deleted, its controller makes no pods. Only then are the new first voters recorded, over
   the ConfigMap as it was before the deletion. If this is interrupted, the next reconciliation
   recreates the StatefulSet with the first voters that are recorded. Before that it changes the
   ConfigMap (`fence`), so a late record is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dledger_formats.http.status import NodeStatus
from dledger_formats.settings import GroupState
from dledger_operator import names
from dledger_operator.api_objects import StatefulSetView
from dledger_operator.behaviors.founding.empty_members import holds_nothing
from dledger_operator.behaviors.steps import FoundAgain, SetPods, Wait
from dledger_operator.problem import Problem
from dledger_operator.spec.shape import Shape

FOUNDING_AGAIN: Final = "FoundingAgain"
_AFTER: Final = "after "
IN_FLIGHT_S_MAX: Final = 5.0
"""How long messages from a pod may still arrive after the API server says that it is gone. Before
that, its kubelet has ended its processes, and so its connections.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbegun:
    """What is known of a group that never had a leader.

    The parts were read in this order: the StatefulSet, the pods and claims, and the members'
    answers, twice. By its second answer, a member has read what reached its host before the first.
    """

    is_seen: bool
    """Whether the controller has seen the StatefulSet as it was read."""
    pods: frozenset[str]
    """The ids of all members that have a pod, also one that is leaving."""
    running: frozenset[str]
    """The ids of the members whose container runs."""
    unbound: frozenset[str]
    """The ids of the members whose volume claim exists and was never bound."""
    asked_s: float
    """When the request for the list of pods was sent, by a monotonic clock."""
    listed_s: float
    """When the list of pods was received, by the same clock."""


class Watch:
    """What one process of the operator has seen of a group that never had a leader."""

    def __init__(self) -> None:
        self._key: object = None
        self._since_s = 0.0
        self._begun_uid = ""

    def may_have_begun(
        self, stateful_set: StatefulSetView, answers: Mapping[str, NodeStatus]
    ) -> bool:
        """Return whether a member of this StatefulSet has ever reported that it holds something."""
        if not all(map(holds_nothing, answers.values())):
            self._begun_uid = stateful_set.uid
        return self._begun_uid == stateful_set.uid

    def absent_s(self, stateful_set: StatefulSetView, unbegun: Unbegun) -> float:
        """Return for how long no pod of a removed member was seen; 0 if one exists, or if the
        StatefulSet has changed since.
        """
        made = stateful_set
        there = any(names.ordinal(each) >= made.replicas for each in unbegun.pods)
        key = None if there or not unbegun.is_seen else (made.uid, made.generation, made.replicas)
        if key is None or key != self._key:
            self._key, self._since_s = key, unbegun.listed_s
        return max(0.0, unbegun.asked_s - self._since_s)


def applies(replicas: int, shape: Shape) -> bool:
    """Return whether a group that never had a leader is to begin with fewer first voters.

    `replicas` is their new number. A group that is to have more begins as it was founded, and then
    grows.
    """
    return shape.state is GroupState.NEW and replicas < shape.first_voters


def fence(uid: str, known: str, *, again: bool) -> str:
    """Return the ConfigMap's note of the StatefulSet, in place of `known`; empty for none.

    `uid` is that of the StatefulSet, empty if there is none, and `again` is from `applies`. A
    founding is recorded over a ConfigMap that names the StatefulSet which was deleted, and only if
    nobody has changed it. Before another StatefulSet is made, the ConfigMap is changed once.
    """
    if uid:
        return uid if again else known
    return known if not known or known.startswith(_AFTER) else f"{_AFTER}{known}"


def next_step(
    replicas: int,
    shape: Shape,
    unbegun: Unbegun,
    answers: Mapping[str, NodeStatus],
    *,
    absent_s: float,
) -> SetPods | FoundAgain | Wait:
    """Return the next step toward `replicas` first voters, which are fewer than `shape` has.

    `shape.pods` are the replicas of the StatefulSet, `answers` are by member id, from pods that are
    not leaving, and `absent_s` is from `Watch`. All members that answer hold nothing.
    """
    first, majority = shape.first_voters, shape.first_voters // 2 + 1
    keep = max(replicas, majority)
    if shape.pods > keep and (silent := sorted(unbegun.running - answers.keys())):
        return _wait(first, replicas, f"no answer from {', '.join(silent)}, whose containers run")
    if shape.pods != keep:
        return SetPods(replicas=keep)
    if not unbegun.is_seen:
        return _wait(first, replicas, "the controller of the StatefulSet has not seen its replicas")
    if left := sorted(each for each in unbegun.pods if names.ordinal(each) >= keep):
        return _wait(first, replicas, f"the pods of {', '.join(left)} are not gone yet")
    if absent_s < IN_FLIGHT_S_MAX:
        what = f"the removed pods are gone for less than {IN_FLIGHT_S_MAX:g} s"
        return _wait(first, replicas, what)
    kept = [names.member_id(ordinal) for ordinal in range(keep)]
    removed = frozenset(map(names.member_id, range(keep, first)))
    asked = [each for each in kept if each not in unbegun.unbound]
    if silent := [each for each in asked if each not in answers]:
        what = f"{', '.join(silent)} must run and say that its volume holds nothing"
        return _wait(first, replicas, what)
    may_vote = [each for each in asked if not _must_hear(answers[each], removed)]
    if len(may_vote) < majority:
        return FoundAgain(first_voters=replicas)
    what = f"{', '.join(may_vote)} may elect a leader"
    if again := [each for each in may_vote if answers[each].joining]:
        what += f"; if none is elected, delete the pods of {', '.join(again)}"
    return _wait(first, replicas, what)


def _must_hear(answer: NodeStatus, removed: frozenset[str]) -> bool:
    """Return whether a member must hear from a removed one before it votes."""
    return answer.joining and not removed.isdisjoint(answer.unheard_voters)


def _wait(first: int, replicas: int, what: str) -> Wait:
    message = (
        f"the group has not begun with {first} members and is to begin with {replicas}: {what}"
    )
    return Wait(Problem(reason=FOUNDING_AGAIN, message=message))
