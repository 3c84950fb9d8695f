"""Observes a group's members: their pods, their volume claims and their own status."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from dledger_formats.http.status import MembershipRole, NodeStatus
from dledger_operator import names
from dledger_operator.api_objects import (
    CreationFailure,
    PodView,
    Problem,
    StatefulSetView,
    VolumeClaimView,
)
from dledger_operator.behaviours.children.claims import DELETE
from dledger_operator.behaviours.members import stuck_pods
from dledger_operator.behaviours.members.founded_again import Unbegun
from dledger_operator.behaviours.members.settings_in_force import WantedSettings
from dledger_operator.clients.errors import KubeError, MemberSilentError
from dledger_operator.observed_state import Membership, ObservedMember
from dledger_operator.spec.group import Group
from dledger_operator.spec.revision import Revision, why_behind

VOLUME_TERMINATING: Final = "VolumeTerminating"
VOLUME_LOST: Final = "VolumeLost"
"""The reason of a claim in the phase Lost: its PersistentVolume is gone."""
VOLUME_ELSEWHERE: Final = ("PersistentVolume's node affinity", "volume node affinity conflict")
"""What schedulers of several releases say about a volume that no node has."""
REPLACE_ADVICE: Final = (
    f"; if the volume does not come back, give the member a new one with a {names.REPLACE_KIND}"
)
logger = logging.getLogger(__name__)

FAILED_CREATE: Final = "FailedCreate"
"""The reason of the StatefulSet controller's Event about a pod that it could not create."""


class CreationApi(Protocol):
    """The API requests that tell why pods were not created."""

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView | None:
        """Get a group's StatefulSet; None if it does not exist."""

    async def creation_failures(self, namespace: str, uid: str) -> list[CreationFailure]:
        """List why pods of the StatefulSet with this uid could not be created, latest first."""


class ClaimApi(Protocol):
    """The API request that tells which claims exist."""

    async def volume_claims(self, namespace: str, group: str) -> list[VolumeClaimView]:
        """List a group's volume claims."""


class UnbegunApi(ClaimApi, Protocol):
    """The API requests that tell what a group has that never had a leader."""

    async def member_pods(self, namespace: str, group: str) -> list[PodView]:
        """List the pods with a group's label from one LIST."""


class StatusClient(Protocol):
    """The member request of this behavior."""

    async def status(self, ip: str) -> NodeStatus:
        """Get a member's status. Raises MemberSilentError on a timeout."""


async def creation_failures(api: CreationApi, namespace: str, group: str) -> list[CreationFailure]:
    """Return why pods of a group could not be created, latest first; empty if it cannot be read."""
    try:
        made = await api.stateful_set(namespace, names.stateful_set(group))
        return await api.creation_failures(namespace, made.uid) if made else []
    except KubeError as error:
        logger.warning("%s/%s: why pods are missing is unknown: %s", namespace, group, error)
        return []


def by_member(pods: Sequence[PodView], answers: Mapping[str, NodeStatus]) -> dict[str, NodeStatus]:
    """Return answers by member id instead of pod uid."""
    return {pod.member_id: answers[pod.uid] for pod in pods if pod.uid in answers}


async def unbegun(
    api: UnbegunApi,
    ask: Callable[[Sequence[PodView]], Awaitable[dict[str, NodeStatus]]],
    group: Group,
    stateful_set: StatefulSetView,
    clock: Callable[[], float],
) -> tuple[Unbegun, dict[str, NodeStatus]]:
    """Return what is known of a group that never had a leader, and its members' answers by pod uid.

    `stateful_set` has just been read. The order is that of `Unbegun`.
    """
    asked_s = clock()
    pods = await api.member_pods(group.namespace, group.name)
    listed_s = clock()
    claims = await api.volume_claims(group.namespace, group.name)
    await ask(pods)
    answers = await ask(pods)
    known = Unbegun(
        is_seen=bool(stateful_set.template_hash),
        pods=frozenset(pod.member_id for pod in pods),
        running=frozenset(pod.member_id for pod in pods if pod.runs and not pod.leaving),
        unbound=frozenset(
            names.member_id(each.ordinal) for each in claims if not (each.volume or each.leaving)
        ),
        asked_s=asked_s,
        listed_s=listed_s,
    )
    return known, answers


async def unwanted_claims(
    api: ClaimApi, group: Group, pods: Sequence[PodView]
) -> list[VolumeClaimView]:
    """Return the claims that may go with their members: those without a pod, not even one that is
    leaving.
    """
    if group.storage.when_scaled != DELETE:
        return []
    claims = await api.volume_claims(group.namespace, group.name)
    used = {names.volume_claim(pod.name) for pod in pods}
    return [claim for claim in claims if claim.name not in used and not claim.leaving]


async def statuses(
    client: StatusClient,
    pods: Sequence[PodView],
    is_stranger: Callable[[NodeStatus], bool] = lambda _: False,
) -> dict[str, NodeStatus]:
    """Ask all members concurrently. Return the answers by pod uid, without those of silent members
    and of others: an address may have passed to a member of another group, which `is_stranger`
    tells, or of this one.
    """

    async def ask(pod: PodView) -> NodeStatus | None:
        try:
            return await client.status(pod.ip)
        except MemberSilentError:
            return None

    asked = [pod for pod in pods if pod.ip]
    answers = await asyncio.gather(*map(ask, asked))
    return {
        pod.uid: answer
        for pod, answer in zip(asked, answers, strict=True)
        if answer and answer.self_id == pod.member_id and not is_stranger(answer)
    }


def members(
    group: Group,
    pods: Sequence[PodView],
    claims: Sequence[VolumeClaimView],
    answers: Mapping[str, NodeStatus],
    membership: Membership,
    failures: Sequence[CreationFailure] = (),
    wanted: Revision | None = None,
    now: datetime | None = None,
    node_ready: Callable[[str], bool | None] = lambda _: None,
    not_live: frozenset[str] = frozenset(),
) -> tuple[ObservedMember, ...]:
    """Return every member that the spec asks for, that has a pod, or that belongs to the group.

    `failures` say why missing pods could not be created, latest first. `wanted` is the revision
    that the spec asks for; None while it is not known. `now` tells whether a pod should have ended,
    and `node_ready` whether the Node of that name is Ready, None if it is not known. `not_live` is
    as in `WantedSettings`.
    """
    existing = {names.ordinal(pod.member_id) for pod in pods}
    existing |= {names.ordinal(each) for each in membership.voters | membership.learners}
    pod_of = {pod.name: pod for pod in pods}
    claim_of = {claim.name: claim for claim in claims}
    failure_of = {each.pod: each for each in reversed(failures)}
    settings = WantedSettings(group, not_live) if wanted else None
    return tuple(
        _member(
            group,
            member_id,
            pod_name,
            pod_of.get(pod_name),
            claim_of.get(names.volume_claim(pod_name)),
            _problem(
                pod_of.get(pod_name),
                claim_of.get(names.volume_claim(pod_name)),
                failure_of.get(pod_name),
                now,
                node_ready,
            ),
            _danger(pod_of.get(pod_name), claim_of.get(names.volume_claim(pod_name))),
            answers,
            membership.role_of(member_id),
            wanted,
            settings,
        )
        for ordinal in range(max(group.replicas, 1 + max(existing, default=-1)))
        for member_id, pod_name in [(names.member_id(ordinal), names.pod(group.name, ordinal))]
    )


def _member(
    group: Group,
    member_id: str,
    pod_name: str,
    pod: PodView | None,
    claim: VolumeClaimView | None,
    problem: Problem | None,
    danger: Problem | None,
    answers: Mapping[str, NodeStatus],
    membership: MembershipRole,
    wanted: Revision | None,
    settings: WantedSettings | None,
) -> ObservedMember:
    status = answers.get(pod.uid) if pod else None
    reason = _why_not_ready(pod, status)
    return ObservedMember(
        member_id=member_id,
        pod=pod_name,
        role=_role(group, pod),
        membership=membership,
        exists=pod is not None,
        leaving=pod is not None and pod.leaving,
        ready=not reason,
        reason=reason,
        problem=problem,
        danger=danger,
        status=status,
        image=pod.image if pod else "",
        revision=pod.revision.name if pod and pod.revision else "",
        behind=why_behind(pod.revision, wanted) if pod and wanted else "",
        volume_requested=claim.requested if claim else "",
        volume_capacity=claim.capacity if claim else "",
        lacks=settings.lacking(status) if status and settings else "",
    )


def _role(group: Group, pod: PodView | None) -> str:
    roles = {group.roles.master: names.ROLE_MASTER, group.roles.slave: names.ROLE_SLAVE}
    return roles.get(pod.role(group.roles), names.ROLE_NONE) if pod else names.ROLE_NONE


def _problem(
    pod: PodView | None,
    claim: VolumeClaimView | None,
    failure: CreationFailure | None,
    now: datetime | None,
    node_ready: Callable[[str], bool | None],
) -> Problem | None:
    """Prefer the problem of the volume claim, which is the cause of the waiting pod's problem."""
    if pod and now and (late := stuck_pods.stuck(pod, now, node_ready(pod.node))):
        return late
    if pod is None and failure:
        return Problem(reason=FAILED_CREATE, message=failure.message)
    found = claim.problem if claim and claim.problem else pod.problem if pod else None
    if found is None:
        return None
    lost = found.reason == VOLUME_LOST or any(words in found.message for words in VOLUME_ELSEWHERE)
    return Problem(reason=found.reason, message=found.message + REPLACE_ADVICE) if lost else found


def _danger(pod: PodView | None, claim: VolumeClaimView | None) -> Problem | None:
    if pod is None or claim is None or not claim.leaving:
        return None
    if claim.replaced_by:
        message = (
            f"volume claim {claim.name} is gone as soon as pod {pod.name} ends: "
            f"{names.REPLACE_KIND} {claim.replaced_by} gives {pod.member_id} a new volume, and "
            "its status says how far it is"
        )
        return Problem(reason=VOLUME_TERMINATING, message=message)
    message = (
        f"volume claim {claim.name} was deleted and is gone as soon as pod {pod.name} ends, and "
        "the member's log with it; once all other members are ready, delete the pod: the member "
        "comes back empty and the leader sends it the log"
    )
    return Problem(reason=VOLUME_TERMINATING, message=message)


def _why_not_ready(pod: PodView | None, status: NodeStatus | None) -> str:
    if pod is None:
        return "the pod does not exist"
    if pod.leaving:
        return "the pod is terminating"
    if pod.problem:
        return f"{pod.problem.reason}: {pod.problem.message}"
    if not pod.ip:
        return "the pod is starting"
    if status is None:
        return f"no answer on port {names.HTTP_PORT}"
    if not status.ready:
        return status.reason or "the member does not serve its role yet"
    if not pod.ready:
        return "the pod's readiness probe does not succeed yet"
    return ""
