"""Scales a group by carrying out one step at a time."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Final, Protocol

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.membership_change import ChangeKind
from dledger_formats.protocol.requests import Message
from dledger_operator import names, reasons
from dledger_operator.api_objects import SettingsView, StatefulSetView, VolumeClaimView
from dledger_operator.behaviors.founding.founded_again import Watch
from dledger_operator.behaviors.loops import backoff_s
from dledger_operator.behaviors.members.leader_client import LeaderClient
from dledger_operator.behaviors.members.membership import is_possible
from dledger_operator.behaviors.members.scale_steps import ScaleState, next_step
from dledger_operator.behaviors.members.steps import ChangeMember, DeleteClaims, Step
from dledger_operator.behaviors.refusals import Refusals
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.behaviors.steps import FoundAgain, HandOver, SetPods, Wait
from dledger_operator.clients.errors import MemberSilentError, RefusedError
from dledger_operator.observed_state import Leader, Membership
from dledger_operator.problem import Problem
from dledger_operator.resources import config_map
from dledger_operator.resources.event import NORMAL
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape

logger = logging.getLogger(__name__)

RETRY_S_MIN: Final = 0.5
# Also the longest delay between a learner's catching up and the request to promote it.
RETRY_S_MAX: Final = 10.0
SCALED: Final = "Scaled"
FOUNDED_AGAIN: Final = "FoundedAgain"
WOKEN: Final = "Woken"
VOLUME_DELETED: Final = "VolumeDeleted"
NO_ANSWER: Final = "NoAnswer"
_MEMBER_EVENTS: Final = {
    ChangeKind.ADD_LEARNER: ("MemberAdded", "was added as a learner"),
    ChangeKind.PROMOTE: ("MemberPromoted", "was promoted to voter"),
    ChangeKind.DEMOTE: ("MemberDemoted", "was demoted to learner"),
    ChangeKind.REMOVE: ("MemberRemoved", "was removed from the group"),
}
_EXPLANATIONS: Final = {
    DLedgerResponseCode.QUORUM_AT_RISK: (
        "too few healthy voters would remain; repair the unhealthy ones first"
    ),
    DLedgerResponseCode.FALL_BEHIND_TOO_MUCH: "the member has not caught up yet",
    DLedgerResponseCode.MEMBERSHIP_CHANGING: "the previous change is not committed yet",
    DLedgerResponseCode.DISK_FULL: "the leader's volume is full",
    DLedgerResponseCode.ADMIN_TOKEN_MISSING: "the operator has no token yet, or may not read it",
    DLedgerResponseCode.ADMIN_TOKEN_REFUSED: "its kubelet has not given it the latest token yet",
    DLedgerResponseCode.ADMIN_TOKEN_NOT_READY: "its kubelet has not given it any token yet",
    DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT: "no majority has acknowledged the change yet",
}


class StatefulSetApi(Protocol):
    """The API requests of this behavior."""

    async def set_replicas(self, stateful_set: StatefulSetView, replicas: int) -> None:
        """Set the replicas. Raises ConflictError if the StatefulSet has changed since its read."""

    async def delete_volume_claim(self, claim: VolumeClaimView) -> None:
        """Delete a claim. Raises ConflictError if it has changed since its read."""

    async def delete_stateful_set(self, stateful_set: StatefulSetView) -> None:
        """Delete a StatefulSet and its pods. Raises ConflictError if it changed since its read."""

    async def settings(self, namespace: str, config_map: str) -> SettingsView | None:
        """Get the ConfigMap with a group's settings; None if it does not exist."""

    async def record_founding(
        self,
        namespace: str,
        config_map: str,
        settings: SettingsView,
        data: Mapping[str, str],
        superseded: Sequence[int],
    ) -> None:
        """Record a founding that takes the place of earlier ones. Raises ConflictError if the
        settings have changed since their read.
        """


class Scaler:
    """Scales one group. It keeps state only for reporting and for the backoff of retries."""

    def __init__(
        self,
        api: StatefulSetApi,
        requests: LeaderClient,
        *,
        clock: Callable[[], float],
        random: Random,
        on_membership: Callable[[Membership], None],
        on_event: Callable[[EventNote], None],
    ) -> None:
        """Create a scaler. `on_membership` is called with the membership in a leader's answer,
        `on_event` with every Event to record.
        """
        self._api = api
        self._requests = requests
        self._clock = clock
        self._random = random
        self._on_membership = on_membership
        self._on_event = on_event
        self._watch = Watch()
        self._removed = ""
        """The member that was removed by the last change."""
        self._failures = 0
        self._retry_at_s = 0.0
        self._refusals = Refusals()
        self.problem: Problem | None = None
        """Why the next step cannot be taken now."""
        self.idle = False
        """Whether the last run found nothing to do."""

    async def run_once(
        self,
        group: Group,
        state: ScaleState,
        stateful_set: StatefulSetView,
        ips: Mapping[str, str],
        claims: Sequence[VolumeClaimView] = (),
    ) -> bool:
        """Take at most one step. Return whether a step was tried, after which `state` is stale.

        `ips` are the members' addresses by member id, `claims` those of the unwanted ordinals.
        """
        if state.unbegun:
            begun = self._watch.may_have_begun(stateful_set, state.answers)
            absent_s = self._watch.absent_s(stateful_set, state.unbegun)
            state = replace(state, unbegun=None if begun else state.unbegun, absent_s=absent_s)
        leader_id = state.leader.member_id if state.leader else None
        step = next_step(replace(state, refusals=self._refusals.of(leader_id)))
        self.idle = step is None
        if step is None or isinstance(step, Wait):
            self.problem = step.problem if step else None
            self._failures = 0
            return False
        if self._clock() < self._retry_at_s:
            return False
        try:
            if await self._take(group, state, stateful_set, ips, claims, step):
                self._record_success()
        except MemberSilentError as error:
            self._record_failure(NO_ANSWER, str(error))
        except RefusedError as error:
            self._record_failure(reasons.REQUEST_REFUSED, str(error))
        return True

    async def _take(
        self,
        group: Group,
        state: ScaleState,
        stateful_set: StatefulSetView,
        ips: Mapping[str, str],
        claims: Sequence[VolumeClaimView],
        step: Step,
    ) -> bool:
        """Take a step; return whether it succeeded. Raises RefusedError if the API server refuses
        it, and MemberSilentError.
        """
        if isinstance(step, SetPods):
            await self._set_pods(group, stateful_set, step.replicas)
            return True
        if isinstance(step, FoundAgain):
            await self._found_again(group, state.shape, stateful_set, step.first_voters)
            return True
        if isinstance(step, DeleteClaims):
            chosen = [each for each in claims if each.ordinal in step.ordinals]
            await self._delete_claims(group, chosen)
            return True
        assert isinstance(step, ChangeMember | HandOver)
        assert state.leader is not None
        identity = state.shape.identity
        return await self._ask_leader(group, state.leader, ips, stateful_set, step, identity)

    async def _ask_leader(
        self,
        group: Group,
        leader: Leader,
        ips: Mapping[str, str],
        stateful_set: StatefulSetView,
        step: ChangeMember | HandOver,
        identity: str,
    ) -> bool:
        ip = ips.get(leader.member_id)
        if ip is None:
            raise MemberSilentError(f"the leader {leader.member_id} has no pod IP")
        if isinstance(step, HandOver):
            transferred = await self._requests.transfer(
                ip, group.name, leader, step.to, identity=identity
            )
            if not self._is_success(transferred, f"TRANSFER to {step.to}"):
                self._refusals.add(leader.member_id, step.to)
                return False
            self._refusals.clear()
            message = (
                f"{leader.member_id} transferred its leadership to {step.to}, because "
                f"{leader.member_id} will be removed"
            )
            self._record_event(group, reasons.LEADERSHIP_MOVED, message)
            return True
        changed = await self._requests.change(
            ip, group.name, leader, step.kind, step.member_id, identity=identity
        )
        if not is_possible(changed):
            raise MemberSilentError(f"{leader.member_id} names members that no group can have")
        if not self._is_success(changed, f"{step.kind.value} {step.member_id}"):
            return False
        membership = Membership(
            voters=frozenset(changed.voters), learners=frozenset(changed.learners)
        )
        self._on_membership(membership)
        removes, ordinal = step.kind is ChangeKind.REMOVE, names.ordinal(step.member_id)
        # A removal is repeated until the pod can be deleted, and succeeds each time.
        if not (removes and step.member_id == self._removed):
            reason, what = _MEMBER_EVENTS[step.kind]
            voters = ", ".join(changed.voters)
            self._record_event(group, reason, f"{step.member_id} {what}; voters: {voters}")
        self._removed = step.member_id if removes else ""
        removed = step.member_id not in membership.voters | membership.learners
        if removes and removed and stateful_set.replicas == ordinal + 1:
            await self._set_pods(group, stateful_set, ordinal)
        return True

    async def _found_again(
        self, group: Group, shape: Shape, stateful_set: StatefulSetView, first_voters: int
    ) -> None:
        """Delete the StatefulSet, and record the founding that the next reconciliation begins.

        The order matters; see `founded_again`.
        """
        name = names.settings_config_map(group.name)
        settings = await self._api.settings(group.namespace, name)
        if settings is None or settings.stateful_set != stateful_set.uid:
            return  # the next reconciliation names the StatefulSet in it
        await self._api.delete_stateful_set(stateful_set)
        begun = replace(Shape.of_new(first_voters), identity=shape.identity)
        data = config_map.founding(group, begun)
        superseded = [*shape.superseded, shape.first_voters]
        await self._api.record_founding(group.namespace, name, settings, data, superseded)
        message = (
            f"the group, which has not begun with {shape.first_voters} members, is founded again "
            f"with {first_voters}"
        )
        self._record_event(group, FOUNDED_AGAIN, message)

    async def _delete_claims(self, group: Group, claims: Sequence[VolumeClaimView]) -> None:
        """Delete the claims that may be deleted. Raises RefusedError if one may not."""
        refused = None
        for claim in claims:
            try:
                await self._api.delete_volume_claim(claim)
            except RefusedError as error:
                refused = error
                continue
            message = f"deleted volume claim {claim.name}: its member was removed from the group"
            self._record_event(group, VOLUME_DELETED, message)
        if refused is not None:
            raise refused

    async def _set_pods(self, group: Group, stateful_set: StatefulSetView, replicas: int) -> None:
        await self._api.set_replicas(stateful_set, replicas)
        before = stateful_set.replicas
        message = f"scaled the StatefulSet from {before} to {replicas} pods"
        if replicas == 0:
            message += (
                ", because spec.hibernate is true; the members stay voters, and their volumes stay"
            )
        reason = reasons.HIBERNATED if replicas == 0 else SCALED if before else WOKEN
        self._record_event(group, reason, message)

    def _is_success(self, answer: Message, request: str) -> bool:
        """Return whether a request to the leader succeeded; record why if it did not."""
        if answer.code is DLedgerResponseCode.SUCCESS:
            return True
        explanation = _EXPLANATIONS.get(answer.code)
        refused = f"the leader refuses {request}: {answer.code.name}"
        message = f"{refused}: {explanation}" if explanation else refused
        self._record_failure(reasons.of_refusal(answer.code), message)
        return False

    def _record_success(self) -> None:
        self.problem = None
        self._failures = 0

    def _record_failure(self, reason: str, message: str) -> None:
        """Schedule a retry with backoff: a change that is refused now may be allowed soon."""
        self._failures += 1
        pause_s = backoff_s(self._failures, RETRY_S_MIN, RETRY_S_MAX, self._random)
        self._retry_at_s = self._clock() + pause_s
        self.problem = Problem(reason=reason, message=message)

    def _record_event(self, group: Group, reason: str, message: str) -> None:
        logger.info("%s/%s: %s", group.namespace, group.name, message)
        self._on_event(EventNote(severity=NORMAL, reason=reason, message=message))
