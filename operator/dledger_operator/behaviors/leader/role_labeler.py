"""Keeps the role labels on the right pods. Two pods never have the master label at the same time.

Relabeling has two steps, and the second starts after the first has succeeded:

1. fence every other pod: set a role other than master, the new term, and the uid of the leader's
   pod;
2. promote the leader's pod: set the master label, the term and the uid.

Each patch carries the resourceVersion from the LIST, so it fails if the pod has changed since. This
keeps two concurrent operators safe: an operator that tries to promote a pod for an older term gets
a conflict, because the pod was fenced, and then reads the higher term. Decisions use a single LIST,
because watch events of different pods have no common order. It may come from the server's cache: an
outdated LIST is no worse than a current one on which an operator acts late.

All replicas of the operator follow, and the one that acts has a head start. Without it, they would
make each other's patches conflict, and the API server would get all requests twice, just when the
Service waits for them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from dledger_formats.http.status import NodeStatus
from dledger_operator import names
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.children.roles import roles_in_force
from dledger_operator.behaviors.leader.foreign_roles import ForeignRoles, RelabelApi
from dledger_operator.behaviors.leader.leader_polls import LeaderPolls
from dledger_operator.behaviors.leader.member_pods import overstated
from dledger_operator.behaviors.leader.pod_list import GroupPods, ListApi, PodList
from dledger_operator.behaviors.leader.role_decision import Decision, RolePatch, decide, taken_back
from dledger_operator.clients.errors import ConflictError, NotFoundError, UnavailableError
from dledger_operator.observed_state import Leader, Membership, Observation
from dledger_operator.problem import Problem
from dledger_operator.spec.group import Group, Roles

logger = logging.getLogger(__name__)

# A follower that loses its leader for a shorter time stays in the slave Service. If it cannot
# serve, its readiness probe removes it sooner; this timeout covers the loss of a whole node.
NOT_FOLLOWING_S_MAX: Final = 10.0
# How soon the operator looks again while there is no leader, or an unexpected pod or term.
LOOK_AGAIN_S: Final = 10.0
# How long a replica that does not act leaves the labels to the one that does. The latter needs
# three requests. If it was lost together with the leader, clients wait for this time.
HEAD_START_S: Final = 0.5
# How often a replica that does not act looks at the pods. If it looked at each event, it would ask
# the API server as much as the one that acts, just then.
STANDING_BY_GAP_S: Final = 0.2
# Added to the waits above, so that they are certainly over when the operator looks again.
CLOCK_S: Final = 0.05
# Conflicts are caused by kubelets that update pod statuses, and end when the pods settle.
ATTEMPTS_MAX: Final = 20


class PodApi(ListApi, RelabelApi, Protocol):
    """The API requests of this behavior."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowResult:
    """The outcome of a run: the pods and their leader. After a failed run, what is known."""

    pods: tuple[PodView, ...] = ()
    leader: Leader | None = None
    labeled: Leader | None = None
    """The leader that the labels were right for last."""
    leader_pod: str = ""
    """The leader's pod; empty without a leader."""
    master_pod: str = ""
    """The pod with the master label; empty if there is none."""
    disputed: bool = False
    roles: Roles | None = None
    """The roles that the labels follow."""
    foreign: tuple[str, ...] = ()
    """Pods that carry the group's label but are not its members' pods."""
    overstated: tuple[str, ...] = ()
    """Pods whose term annotation is above every member's term."""
    problem: Problem | None = None
    """Why the pods cannot be listed or labeled, if that lasts."""

    @property
    def is_known(self) -> bool:
        """Whether the pods were listed once."""
        return self.roles is not None or bool(self.pods)

    @property
    def awaits_labels(self) -> bool:
        """Whether the master Service does not select the leader yet, so no member may go."""
        return self.leader not in (None, self.labeled)


class RoleLabeler:
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
        stands_by: Callable[[], bool] = lambda: False,
    ) -> None:
        """Create a labeler for one group.

        `ask` asks members for their status, by pod uid. `on_decision` is called with every decision
        before it is applied, `on_settled` at the end of every run that leaves nothing to patch,
        `on_conflict` for each patch that was refused because the pod had changed. `stands_by`
        returns whether another replica acts.
        """
        self._api = api
        self._polls = polls
        self._clock = clock
        self._on_decision = on_decision
        self._on_settled = on_settled
        self._on_conflict = on_conflict
        self._ask = ask
        self._stands_by = stands_by
        self._list = PodList(api)
        self._foreign_roles = ForeignRoles(api, clock)
        self.unsettled: FollowResult | None = None
        """The result of the last run, if it has left patches to make."""
        self._saw_event = False
        """Whether a watch event of a pod was received since the last run began."""
        self._seen: frozenset[Observation] = frozenset()
        """The members' answers when the last run began."""
        self._looked_at_s: float | None = None
        """When the last run that did not fail began."""
        self._left_since_s: float | None = None
        """Since when patches are left to the replica that acts."""
        self._calm = False
        """Whether the last run found no condition that may end without an event."""
        self._strays_since_s: dict[str, float] = {}
        """By pod uid, since when each pod has not followed the leader; no entry if it follows."""
        self._roles: Roles | None = None
        self.roles_changed = True
        """Whether the master Service may have changed since its roles were read."""

    async def run_once(self, group: Group, membership: Membership) -> float | None:
        """Make the labels match the leader, by the roles of the Services as applied.

        Returns the seconds until the next run, due even without an event; None if events
        suffice. Raises UnavailableError after too many conflicts.
        """
        now = self._clock()
        if (too_soon_s := self._too_soon_s(now)) > 0:
            return too_soon_s
        # A run that nothing called for looks for what no event has reported, so not in the cache.
        seen = frozenset(self._polls.observations())
        cached = self._saw_event or seen != self._seen
        self._saw_event, self._seen, self.unsettled = False, seen, None
        for _ in range(ATTEMPTS_MAX):
            pods = await self._list.read(group, cached=cached)
            cached = False
            # Read after the pods: if the roles change now, the patches of these pods conflict.
            group = await self._with_applied_roles(group)
            self._polls.sync(pods.members)
            if not self._stands_by():
                await self._foreign_roles.remove(group, pods.foreign)
            try:
                pods = await self._take_back_terms(group, membership, pods)
            except (ConflictError, NotFoundError) as error:
                self._count_conflicts([error])
                continue
            if await self._settle(group, membership, pods):
                self._looked_at_s = now
                return self._next_look_s()
        raise UnavailableError(
            f"gave up relabeling the pods of {group.namespace}/{group.name} after {ATTEMPTS_MAX} "
            "conflicts with other clients; will retry"
        )

    def saw(self, resource_version: str) -> None:
        """Record the version of a pod from a watch event."""
        self._saw_event = True
        self._list.saw(resource_version)

    async def _with_applied_roles(self, group: Group) -> Group:
        if self.roles_changed or self._roles is None:
            self.roles_changed, self._roles = False, None
            name = names.master_service(group.name)
            service = await self._api.child("Service", group.namespace, name)
            self._roles = roles_in_force(service, group)
        return replace(group, roles=self._roles)

    async def _take_back_terms(
        self, group: Group, membership: Membership, pods: GroupPods
    ) -> GroupPods:
        """Lower term annotations that no member has reached, as far as `forged` proves that."""
        if not overstated(pods.members, self._polls.observations(), membership):
            return pods
        answers = await self._ask(pods.members)
        lowered = {
            patch.pod.uid: await self._apply(group, patch)
            for patch in taken_back(pods.members, answers, group, membership)
        }
        return pods.with_changed(lowered)

    async def _settle(self, group: Group, membership: Membership, pods: GroupPods) -> bool:
        """Apply decisions until none is left, or leave them to the replica that acts.

        Returns False if the pods must be listed again.
        """
        for _ in range(ATTEMPTS_MAX):
            decision = decide(
                pods=pods.members,
                unbelieved=pods.unbelieved,
                observations=self._polls.observations(),
                group=group,
                membership=membership,
                not_following=self._not_following(pods.members),
            )
            self._on_decision(decision)
            above = overstated(pods.members, self._polls.observations(), membership)
            found = replace(
                _result(group, decision, pods.members),
                foreign=pods.foreign_names,
                overstated=tuple(f"{pod.name} ({pod.term})" for pod in above),
            )
            if not decision.patches:
                self._remember_followers(decision.leader, pods.members)
                sleeps = group.hibernate and not pods.members
                self._calm = (found.leader is not None or sleeps) and not (
                    above or found.foreign or found.disputed
                )
                self._left_since_s = self.unsettled = None
                self._on_settled(replace(found, labeled=found.leader))
                return True
            self.unsettled = found
            if self._leaves_it():
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
            pods = pods.with_changed({pod.uid: pod for pod in changed if isinstance(pod, PodView)})
        return False

    def _too_soon_s(self, now: float) -> float:
        """Return how long a replica that does not act waits before it looks again."""
        if self._looked_at_s is None or not self._stands_by():
            return 0.0
        due_s = self._looked_at_s + STANDING_BY_GAP_S
        if self._left_since_s is not None:
            due_s = min(due_s, self._left_since_s + HEAD_START_S)
        return due_s - now

    def _leaves_it(self) -> bool:
        """Return whether to leave the patches to the replica that acts, which has a head start.

        The other replica may be changing the labels because it has changed the roles, and the watch
        of the Service may be late. So this replica reads the roles again before it makes any patch.
        """
        if not self._stands_by():
            return False
        self.roles_changed = True
        now = self._clock()
        if self._left_since_s is None:
            self._left_since_s = now
        return now - self._left_since_s < HEAD_START_S

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
        self._list.saw(changed.resource_version)
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
        """Return the seconds until a pod has not followed the leader for too long, or until another
        look at what is wrong; None if events suffice.
        """
        now = self._clock()
        left_s = [since + NOT_FOLLOWING_S_MAX - now for since in self._strays_since_s.values()]
        if self._left_since_s is not None:
            left_s.append(max(0.0, self._left_since_s + HEAD_START_S - now))
        looks_s = [each + CLOCK_S for each in left_s if each >= 0]
        return min(looks_s if self._calm else [LOOK_AGAIN_S, *looks_s], default=None)

    def _remember_followers(self, leader: Leader | None, pods: Sequence[PodView]) -> None:
        """Record which pods follow the leader. Without a leader, every observed pod counts.

        A poll reports at once when a pod stops following, so the time of this run is that time.
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


def pod_of(group_name: str, leader: Leader | None) -> str:
    """Return the name of the leader's pod; empty without a leader."""
    return names.pod(group_name, names.ordinal(leader.member_id)) if leader else ""


def _result(group: Group, decision: Decision, pods: Sequence[PodView]) -> FollowResult:
    masters = [pod.name for pod in pods if pod.role(group.roles) == group.roles.master]
    leader = decision.leader
    return FollowResult(
        pods=tuple(pods),
        leader=leader,
        leader_pod=pod_of(group.name, leader),
        master_pod=masters[0] if masters else "",
        disputed=decision.disputed,
        roles=group.roles,
    )
