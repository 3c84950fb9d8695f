"""Keeps the role labels on the right pods. Two pods never have the master label at the same time.

Relabeling has two steps, and the second starts after the first has succeeded:

1. fence every other pod: set a role other than master, the new term, and the uid of the leader's
   pod;
2. promote the leader's pod: set the master label, the term and the uid.

Each patch carries the resourceVersion from the LIST, so it fails if the pod has changed since. This
keeps two concurrent operators safe: an operator that tries to promote a pod for an older term gets
a conflict, because the pod was fenced, and then reads the higher term. Decisions use a single LIST,
because watch events of different pods have no common order.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from dledger_formats.http.status import NodeStatus
from dledger_operator import names
from dledger_operator.api_objects import ChildView, PodView
from dledger_operator.behaviours.children.ownership import Ownership, ownership
from dledger_operator.behaviours.children.roles import roles_in_force
from dledger_operator.behaviours.leader.leader_polls import LeaderPolls
from dledger_operator.behaviours.leader.member_pods import is_member, overstated
from dledger_operator.behaviours.leader.role_decision import (
    Decision,
    RolePatch,
    decide,
    taken_back,
)
from dledger_operator.clients.errors import ConflictError, NotFoundError, UnavailableError
from dledger_operator.observed_state import Leader, Membership
from dledger_operator.spec.group import Group, Roles

logger = logging.getLogger(__name__)

# A follower that loses its leader for a shorter time stays in the slave Service. If it cannot
# serve, its readiness probe removes it sooner; this timeout covers the loss of a whole node.
NOT_FOLLOWING_S_MAX: Final = 10.0
# How soon the operator looks again while there is no leader, or an odd pod or term.
LOOK_AGAIN_S: Final = 10.0
# So that the time above is over, and not just about to be, when the operator looks again.
CLOCK_S: Final = 0.05
# Conflicts are caused by kubelets that update pod statuses, and end when the pods settle.
ATTEMPTS_MAX: Final = 20


class PodApi(Protocol):
    """The API requests of this behavior."""

    async def member_pods(self, namespace: str, group: str) -> list[PodView]:
        """List the pods with a group's label from one LIST."""

    async def child(self, kind: str, namespace: str, name: str) -> ChildView | None:
        """Get the metadata of an object; None if it does not exist."""

    async def relabel_pod(
        self, pod: PodView, labels: Mapping[str, str | None], annotations: Mapping[str, str]
    ) -> PodView:
        """Patch a pod. Raises ConflictError if it has changed since it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowResult:
    """The outcome of a run: the relabeled pods and their leader."""

    pods: tuple[PodView, ...] = ()
    leader: Leader | None = None
    leader_pod: str = ""
    """The leader's pod; empty without a leader."""
    master_pod: str = ""
    """The pod with the master label; empty if there is none."""
    disputed: bool = False
    roles: Roles | None = None
    """The roles that the labels follow."""
    foreign: tuple[str, ...] = ()
    """Pods that carry the group's label and are not its members'."""
    overstated: tuple[str, ...] = ()
    """Pods whose term annotation is above every member's term."""


class LeaderFollower:
    """Updates the role labels of one group's pods."""

    def __init__(
        self,
        api: PodApi,
        polls: LeaderPolls,
        *,
        ask: Callable[[Sequence[PodView]], Awaitable[Mapping[str, NodeStatus]]],
        clock: Callable[[], float],
        on_decision: Callable[[Decision], None],
        on_settled: Callable[[FollowResult], None],
        on_conflict: Callable[[], None],
    ) -> None:
        """Create a follower.

        `ask` asks members for their status, by pod uid. `on_decision` is called with every decision
        before it is applied, `on_settled` at the end of every run, `on_conflict` for each patch
        that was refused because the pod had changed.
        """
        self._api = api
        self._polls = polls
        self._clock = clock
        self._on_decision = on_decision
        self._on_settled = on_settled
        self._on_conflict = on_conflict
        self._ask = ask
        self._stateful_set_uids: frozenset[str] = frozenset()
        self._member_uids: frozenset[str] = frozenset()
        self._foreign: tuple[str, ...] = ()
        self._calm = False
        """Whether the last run found nothing that may end without an event."""
        self._strays_since_s: dict[str, float] = {}
        """Since when each pod that does not follow the leader does not, by uid."""
        self._roles: Roles | None = None
        self.roles_changed = True
        """Whether the Services may have been applied since their roles were read."""

    async def run_once(self, group: Group, membership: Membership) -> float | None:
        """Make the labels match the leader, by the roles of the Services as applied.

        Returns in how many seconds to look again, although nothing may have changed by then; None
        if there is no such time. Raises UnavailableError after too many conflicts.
        """
        group = await self._with_applied_roles(group)
        for _ in range(ATTEMPTS_MAX):
            pods = await self._member_pods(group)
            self._polls.sync(pods)
            try:
                pods = await self._take_back_terms(group, membership, pods)
            except (ConflictError, NotFoundError) as error:
                self._count_conflicts([error])
                continue
            if await self._settle(group, membership, pods):
                return self._next_look_s()
        raise UnavailableError(
            f"gave up relabeling the pods of {group.namespace}/{group.name} after {ATTEMPTS_MAX} "
            "conflicts with other clients; will retry"
        )

    async def _with_applied_roles(self, group: Group) -> Group:
        if self.roles_changed or self._roles is None:
            self.roles_changed, self._roles = False, None
            name = names.master_service(group.name)
            service = await self._api.child("Service", group.namespace, name)
            self._roles = roles_in_force(service, group)
        return replace(group, roles=self._roles)

    async def _member_pods(self, group: Group) -> list[PodView]:
        """List the members' pods. The StatefulSet is read only if a pod has another owner.

        Somebody may delete it under a living group. The pods of the old one then leave while those
        of the new one start; one that was the master must lose its label as any other.
        """
        listed = await self._api.member_pods(group.namespace, group.name)
        if any(pod.owner_uid not in self._stateful_set_uids for pod in listed):
            name = names.stateful_set(group.name)
            found = await self._api.child("StatefulSet", group.namespace, name)
            own = found is not None and ownership(found, group) in (Ownership.OWN, Ownership.ORPHAN)
            left = self._stateful_set_uids & {pod.owner_uid for pod in listed}
            self._stateful_set_uids = left | ({found.uid} if found and own else set())
        # While a StatefulSet is made again, the pods that it left have no owner for a moment.
        members = [
            pod
            for pod in listed
            if is_member(pod, group.name, self._stateful_set_uids)
            or (not pod.owner_uid and pod.uid in self._member_uids)
        ]
        self._member_uids = frozenset(pod.uid for pod in members)
        self._foreign = tuple(pod.name for pod in listed if pod not in members)
        return members

    async def _take_back_terms(
        self, group: Group, membership: Membership, pods: list[PodView]
    ) -> list[PodView]:
        """Lower term annotations that no member has reached, if all voters answer."""
        if not overstated(pods, self._polls.observations(), membership):
            return pods
        answers = await self._ask(pods)
        lowered = {
            patch.pod.uid: await self._apply(group, patch)
            for patch in taken_back(pods, answers, group, membership)
        }
        return [lowered.get(pod.uid, pod) for pod in pods]

    async def _settle(self, group: Group, membership: Membership, pods: list[PodView]) -> bool:
        """Apply decisions until none is left. Return False if the pods must be listed again."""
        for _ in range(ATTEMPTS_MAX):
            decision = decide(
                pods=pods,
                observations=self._polls.observations(),
                group=group,
                membership=membership,
                not_following=self._not_following(pods),
            )
            self._on_decision(decision)
            if not decision.patches:
                self._remember_followers(decision.leader, pods)
                above = overstated(pods, self._polls.observations(), membership)
                settled = _result(group, decision, pods)
                self._calm = settled.leader is not None and not (
                    above or self._foreign or settled.disputed
                )
                self._on_settled(
                    replace(
                        settled,
                        roles=group.roles,
                        foreign=self._foreign,
                        overstated=tuple(f"{pod.name} ({pod.term})" for pod in above),
                    )
                )
                return True
            changed = await asyncio.gather(
                *(self._apply(group, patch) for patch in decision.patches), return_exceptions=True
            )
            self._count_conflicts(changed)
            for outcome in changed:
                if isinstance(outcome, ConflictError | NotFoundError):
                    return False
                if isinstance(outcome, BaseException):
                    raise outcome
            fresh = {pod.uid: pod for pod in changed if isinstance(pod, PodView)}
            pods = [fresh.get(pod.uid, pod) for pod in pods]
        return False

    def _count_conflicts(self, outcomes: Sequence[PodView | BaseException]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, ConflictError):
                self._on_conflict()

    async def _apply(self, group: Group, patch: RolePatch) -> PodView:
        former = dict.fromkeys(group.roles.former, None)
        role = {group.roles.label: patch.role, names.MEMBER_LABEL: patch.pod.member_id}
        labels = {**{key: None for key in former if key in patch.pod.labels}, **role}
        annotations = {
            names.TERM_ANNOTATION: str(patch.term),
            names.LEADER_POD_ANNOTATION: patch.leader_pod_uid,
        }
        changed = await self._api.relabel_pod(patch.pod, labels, annotations)
        logger.info(
            "%s/%s: labeled pod %s as %s in term %d",
            group.namespace, group.name, patch.pod.name, patch.role, patch.term,
        )  # fmt: skip
        return changed

    def _not_following(self, pods: Sequence[PodView]) -> frozenset[str]:
        now = self._clock()
        since = self._strays_since_s
        return frozenset(
            pod.uid for pod in pods if now - since.get(pod.uid, now) > NOT_FOLLOWING_S_MAX
        )

    def _next_look_s(self) -> float | None:
        """Return when the next pod has not followed the leader for too long, or when to look at
        what is wrong; None if events tell everything.
        """
        now = self._clock()
        left_s = [since + NOT_FOLLOWING_S_MAX - now for since in self._strays_since_s.values()]
        looks_s = [each + CLOCK_S for each in left_s if each >= 0]
        return min(looks_s if self._calm else [LOOK_AGAIN_S, *looks_s], default=None)

    def _remember_followers(self, leader: Leader | None, pods: Sequence[PodView]) -> None:
        """Record which pods follow the leader. Without a leader, every observed pod counts.

        A poll reports at once that a pod follows no longer, so the time of this run is that time.
        """
        now = self._clock()
        following = {
            each.pod_uid
            for each in self._polls.observations()
            if leader is None or each.follows(leader)
        }
        self._strays_since_s = {
            pod.uid: self._strays_since_s.get(pod.uid, now)
            for pod in pods
            if pod.uid not in following
        }


def _result(group: Group, decision: Decision, pods: Sequence[PodView]) -> FollowResult:
    masters = [pod.name for pod in pods if pod.role(group.roles) == group.roles.master]
    leader = decision.leader
    return FollowResult(
        pods=tuple(pods),
        leader=leader,
        leader_pod=names.pod(group.name, names.ordinal(leader.member_id)) if leader else "",
        master_pod=masters[0] if masters else "",
        disputed=decision.disputed,
    )
