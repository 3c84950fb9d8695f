"""Decides which role labels the pods of a group get next. Pure.

`follow_leader` applies the patches of one decision before it asks for the next, so fences come
before a promotion.

A pod without a role and without an address needs no fence: when it was listed, no operator could
know that its member leads. An operator that learns it later lists the pods again, and must fence
the pod that was promoted meanwhile, so one of the two operators gets a conflict. The fence records
the uid of the leader's pod, since a fence for an earlier pod of the same member is not enough. So
the pod that replaces a killed leader's, and which scheduler and kubelet change, delays no
promotion.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dledger_formats.http.status import NodeStatus
from dledger_operator import names
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.leader.leadership import disproved, leaders_of_highest_term
from dledger_operator.behaviors.leader.member_pods import forged
from dledger_operator.observed_state import Leader, Membership, Observation
from dledger_operator.spec.group import Group

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePatch:
    """The new role of a pod, and what to record with it."""

    pod: PodView
    role: str
    term: int
    """The leader's term."""
    leader_pod_uid: str = ""
    """The uid of the leader's pod; empty without a leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The leader, and the patches of the next step, which may run concurrently.

    Without patches, the labels are right, or there is no leader to label.
    """

    leader: Leader | None
    disputed: bool
    patches: tuple[RolePatch, ...]


def decide(
    *,
    pods: Sequence[PodView],
    unbelieved: Sequence[PodView] = (),
    observations: Sequence[Observation],
    group: Group,
    membership: Membership,
    not_following: frozenset[str],
) -> Decision:
    """Decide on the next step.

    `pods` and `unbelieved` must come from one LIST; see `GroupPods`. `not_following` holds the uids
    of pods that have not followed the leader for more than `NOT_FOLLOWING_S_MAX`.
    """
    leaders = leaders_of_highest_term(pods, observations, membership)
    if len(leaders) == 1:
        patches = _fences(leaders[0], pods, observations, group, membership, not_following)
        patches += _fences_of_unbelieved(leaders[0], unbelieved, pods, group)
        return Decision(
            leader=leaders[0],
            disputed=False,
            patches=patches or _promotion(leaders[0], pods, group),
        )
    disputed = len(leaders) > 1
    # The highest term of the pods, unless no member is known to have reached it: it may be forged.
    highest = max((pod.term for pod in pods), default=0)
    term = min(highest, max((each.term for each in observations), default=0))
    demotions = tuple(
        RolePatch(pod=pod, role=names.ROLE_NONE, term=max(0, term, pod.term))
        for pod in pods
        if pod.role(group.roles) == group.roles.master
        and (disputed or disproved(pod, observations, membership))
    )
    return Decision(leader=None, disputed=disputed, patches=demotions)


def _fences(
    leader: Leader,
    pods: Sequence[PodView],
    observations: Sequence[Observation],
    group: Group,
    membership: Membership,
    not_following: frozenset[str],
) -> tuple[RolePatch, ...]:
    """Give every pod except the leader's a role other than master.

    Only voters are in the slave Service: a learner may be hours behind, and a removed member is
    about to be deleted.
    """
    following = {each.pod_uid for each in observations if each.follows(leader)}
    leader_uid = _pod_uid(leader, pods)
    fences = []
    for pod in pods:
        if pod.member_id == leader.member_id or _is_unknown(pod, group):
            continue
        stays_slave = pod.role(group.roles) == group.roles.slave and pod.uid not in not_following
        serves = pod.member_id in membership.voters and (pod.uid in following or stays_slave)
        role = group.roles.slave if serves else names.ROLE_NONE
        wanted = RolePatch(pod=pod, role=role, term=leader.term, leader_pod_uid=leader_uid)
        if not _is_labeled(wanted, group):
            fences.append(wanted)
    return tuple(fences)


def _fences_of_unbelieved(
    leader: Leader, unbelieved: Sequence[PodView], pods: Sequence[PodView], group: Group
) -> tuple[RolePatch, ...]:
    """Fence pods that an operator may believe which has read an earlier StatefulSet.

    Their terms hide no leader, since nobody else knows who has written them, but are not lowered.
    """
    leader_uid = _pod_uid(leader, pods)
    wanted = (
        RolePatch(
            pod=pod,
            role=names.ROLE_NONE,
            term=max(leader.term, pod.term),
            leader_pod_uid=leader_uid,
        )
        for pod in unbelieved
        if not _is_unknown(pod, group)
    )
    return tuple(fence for fence in wanted if not _is_labeled(fence, group))


def _promotion(leader: Leader, pods: Sequence[PodView], group: Group) -> tuple[RolePatch, ...]:
    """Promote the leader's pod, unless it is leaving and about to transfer its leadership."""
    wanted = (
        RolePatch(pod=pod, role=group.roles.master, term=leader.term, leader_pod_uid=pod.uid)
        for pod in pods
        if pod.member_id == leader.member_id
        and not (pod.leaving and pod.role(group.roles) != group.roles.master)
    )
    return tuple(patch for patch in wanted if not _is_labeled(patch, group))


def _pod_uid(leader: Leader, pods: Sequence[PodView]) -> str:
    """Return the uid of the leader's pod; empty if it is gone."""
    return next((pod.uid for pod in pods if pod.member_id == leader.member_id), "")


def _is_unknown(pod: PodView, group: Group) -> bool:
    """Return whether no operator can know yet what the pod's member does, and none has acted."""
    return not pod.ip and not pod.labels.keys() & {group.roles.label, *group.roles.former}


def _is_labeled(wanted: RolePatch, group: Group) -> bool:
    """Return whether a pod has the role, the term and the leader's pod, and no earlier label."""
    pod = wanted.pod
    left = any(label in pod.labels for label in group.roles.former)
    found = (pod.role(group.roles), pod.term, pod.leader_pod_uid)
    return found == (wanted.role, wanted.term, wanted.leader_pod_uid) and not left


def taken_back(
    pods: Sequence[PodView],
    answers: Mapping[str, NodeStatus],
    group: Group,
    membership: Membership,
) -> tuple[RolePatch, ...]:
    """Lower forged term annotations to the members' highest term; see `forged` for `answers`.

    A pod keeps the master label only if its member has just answered that it leads that term.
    """
    term, wrong = forged(pods, answers, membership)
    patches = []
    for pod in wrong:
        answer = answers.get(pod.uid)
        leads = answer is not None and answer.master and answer.term == term
        master = leads and pod.role(group.roles) == group.roles.master
        role = group.roles.master if master else names.ROLE_NONE
        logger.warning(
            "pod %s carried the term %d, which no member has reached", pod.name, pod.term
        )
        patches.append(RolePatch(pod=pod, role=role, term=term))
    return tuple(patches)
