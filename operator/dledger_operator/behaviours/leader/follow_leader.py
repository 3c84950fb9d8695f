"""Keeps the role labels on the right pods: at no instant do two pods carry the master's.

A relabelling has two steps, and the second waits for the first:

1. every other pod is fenced: it gets a role that is not the master's, and the new term;
2. the leader's pod gets the master's label and the term.

Each patch names the resourceVersion of the pod as it was listed, so it fails when anybody touched
the pod since. That is what makes two operators safe at once: one that is about to promote a pod for
an older term finds its pod fenced, and reads the higher term when it looks again. Decisions are
made on one LIST, because watch events of several pods come in no common order.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from dledger_operator import names
from dledger_operator.behaviours.leader.leader_polls import LeaderPolls
from dledger_operator.behaviours.leader.leadership import disproved, leaders_of_highest_term
from dledger_operator.clients.errors import ConflictError, NotFoundError, UnavailableError
from dledger_operator.facts import Electorate, Leader, Observation
from dledger_operator.spec.group import Group
from dledger_operator.views import PodView

logger = logging.getLogger(__name__)

# A follower that loses sight of the leader for less keeps its place in the slave Service. Its own
# readiness probe takes it out sooner when it cannot serve; this is for a node that died as a whole.
ASTRAY_S_MAX: Final = 10.0
# Conflicts come from kubelets that write pod statuses; they end as soon as the pods settle.
ATTEMPTS_MAX: Final = 20


class PodApi(Protocol):
    """What this behaviour asks of the API server."""

    async def member_pods(self, namespace: str, group: str) -> list[PodView]:
        """List a group's pods as they are at one instant."""

    async def relabel_pod(
        self, pod: PodView, labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> PodView:
        """Change a pod that nobody has changed since it was read; else ConflictError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePatch:
    """A pod's new role and the term of the leader that it stands for."""

    pod: PodView
    role: str
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Who leads, and the patches to make next: all of them may be made at once.

    No patches means that the labels are right, or that nothing better is known.
    """

    leader: Leader | None
    disputed: bool
    patches: tuple[RolePatch, ...]


def decide(
    *,
    pods: Sequence[PodView],
    observations: Sequence[Observation],
    group: Group,
    electorate: Electorate,
    astray: frozenset[str],
) -> Decision:
    """Decide on the next step.

    `pods` must be of one LIST. `astray` holds the uids of pods that have not followed the leader
    for longer than `ASTRAY_S_MAX`.
    """
    leaders = leaders_of_highest_term(pods, observations, electorate)
    if len(leaders) == 1:
        patches = _fences(leaders[0], pods, observations, group, electorate, astray)
        return Decision(
            leader=leaders[0],
            disputed=False,
            patches=patches or _promotion(leaders[0], pods, group),
        )
    disputed = len(leaders) > 1
    term = max([0, *(pod.term for pod in pods)])
    demotions = tuple(
        RolePatch(pod=pod, role=names.ROLE_NONE, term=term)
        for pod in pods
        if pod.role(group.roles) == group.roles.master
        and (disputed or disproved(pod, observations, electorate))
    )
    return Decision(leader=None, disputed=disputed, patches=demotions)


def _fences(
    leader: Leader,
    pods: Sequence[PodView],
    observations: Sequence[Observation],
    group: Group,
    electorate: Electorate,
    astray: frozenset[str],
) -> tuple[RolePatch, ...]:
    """Give every other pod a role that is not the master's.

    Who does not vote is in no Service: a learner may be hours behind, and who was removed is
    about to go.
    """
    following = {each.pod_uid for each in observations if each.follows(leader)}
    fences = []
    for pod in pods:
        if pod.member_id == leader.member_id:
            continue
        keeps_place = pod.role(group.roles) == group.roles.slave and pod.uid not in astray
        serves = pod.member_id in electorate.voters and (pod.uid in following or keeps_place)
        role = group.roles.slave if serves else names.ROLE_NONE
        if (pod.role(group.roles), pod.term) != (role, leader.term):
            fences.append(RolePatch(pod=pod, role=role, term=leader.term))
    return tuple(fences)


def _promotion(leader: Leader, pods: Sequence[PodView], group: Group) -> tuple[RolePatch, ...]:
    """Promote the leader's pod, unless it is leaving: then it is about to hand over."""
    return tuple(
        RolePatch(pod=pod, role=group.roles.master, term=leader.term)
        for pod in pods
        if pod.member_id == leader.member_id
        and (pod.role(group.roles), pod.term) != (group.roles.master, leader.term)
        and not (pod.leaving and pod.role(group.roles) != group.roles.master)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """The outcome of a turn: the pods as they are now, and who leads them."""

    pods: tuple[PodView, ...] = ()
    leader: Leader | None = None
    leader_pod: str = ""
    """The leader's pod; empty while nobody leads."""
    master_pod: str = ""
    """The pod that carries the master's label; empty when none does."""
    disputed: bool = False


class LeaderFollower:
    """Follows one group's leader."""

    def __init__(
        self,
        api: PodApi,
        polls: LeaderPolls,
        *,
        clock: Callable[[], float],
        on_decision: Callable[[Decision], None],
        on_settled: Callable[[Followed], None],
    ) -> None:
        """Take `on_decision` for every decision, before it is carried out, and `on_settled` for
        the end of every turn.
        """
        self._api = api
        self._polls = polls
        self._clock = clock
        self._on_decision = on_decision
        self._on_settled = on_settled
        self._last_followed_s: dict[str, float] = {}

    async def turn(self, group: Group, electorate: Electorate) -> None:
        """Bring the labels in line with the leader; UnavailableError when others interfere for
        too long.
        """
        for _ in range(ATTEMPTS_MAX):
            pods = await self._api.member_pods(group.namespace, group.name)
            self._polls.sync(pods)
            if await self._settle(group, electorate, pods):
                return
        raise UnavailableError(
            f"the pods of {group.namespace}/{group.name} were changed by others "
            f"{ATTEMPTS_MAX} times while they were relabelled"
        )

    async def _settle(self, group: Group, electorate: Electorate, pods: list[PodView]) -> bool:
        """Take one step after another; False when the pods must be listed again first."""
        for _ in range(ATTEMPTS_MAX):
            decision = decide(
                pods=pods,
                observations=self._polls.observations(),
                group=group,
                electorate=electorate,
                astray=self._astray(pods),
            )
            self._on_decision(decision)
            if not decision.patches:
                self._remember_followers(decision.leader, pods)
                self._on_settled(_followed(group, decision, pods))
                return True
            changed = await asyncio.gather(
                *(self._apply(group, patch) for patch in decision.patches), return_exceptions=True
            )
            for outcome in changed:
                if isinstance(outcome, ConflictError | NotFoundError):
                    return False
                if isinstance(outcome, BaseException):
                    raise outcome
            fresh = {pod.uid: pod for pod in changed if isinstance(pod, PodView)}
            pods = [fresh.get(pod.uid, pod) for pod in pods]
        return False

    async def _apply(self, group: Group, patch: RolePatch) -> PodView:
        labels = {group.roles.label: patch.role, names.MEMBER_LABEL: patch.pod.member_id}
        annotations = {names.TERM_ANNOTATION: str(patch.term)}
        changed = await self._api.relabel_pod(patch.pod, labels, annotations)
        logger.info(
            "%s/%s: pod %s is %s in term %d",
            group.namespace, group.name, patch.pod.name, patch.role, patch.term,
        )  # fmt: skip
        return changed

    def _astray(self, pods: Sequence[PodView]) -> frozenset[str]:
        now = self._clock()
        return frozenset(
            pod.uid
            for pod in pods
            if now - self._last_followed_s.setdefault(pod.uid, now) > ASTRAY_S_MAX
        )

    def _remember_followers(self, leader: Leader | None, pods: Sequence[PodView]) -> None:
        """Note who follows now; while nobody leads, nobody can go astray."""
        now = self._clock()
        following = {
            each.pod_uid
            for each in self._polls.observations()
            if leader is None or each.follows(leader)
        }
        self._last_followed_s = {
            pod.uid: now if pod.uid in following else self._last_followed_s.get(pod.uid, now)
            for pod in pods
        }


def _followed(group: Group, decision: Decision, pods: Sequence[PodView]) -> Followed:
    masters = [pod.name for pod in pods if pod.role(group.roles) == group.roles.master]
    leader = decision.leader
    return Followed(
        pods=tuple(pods),
        leader=leader,
        leader_pod=names.pod(group.name, names.ordinal(leader.member_id)) if leader else "",
        master_pod=masters[0] if masters else "",
        disputed=decision.disputed,
    )
