"""Reads what members are judged by: their own status, their claims, and why pods are missing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from dledger_formats.http.status import NodeStatus
from dledger_operator import names
from dledger_operator.api_objects import (
    CreationFailure,
    PodView,
    StatefulSetView,
    VolumeClaimView,
)
from dledger_operator.behaviors.founding.founded_again import Unbegun
from dledger_operator.behaviors.members.membership import is_possible
from dledger_operator.behaviors.volumes.claim_owners import DELETE
from dledger_operator.clients.errors import KubeError, MemberSilentError
from dledger_operator.spec.group import Group

logger = logging.getLogger(__name__)


class CreationApi(Protocol):
    """The API requests that show why pods were not created."""

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView | None:
        """Get a group's StatefulSet; None if it does not exist."""

    async def creation_failures(self, namespace: str, uid: str) -> list[CreationFailure]:
        """List why pods of the StatefulSet with this uid could not be created, latest first."""


class ClaimApi(Protocol):
    """The API request that shows which claims exist."""

    async def volume_claims(self, namespace: str, group: str) -> list[VolumeClaimView]:
        """List a group's volume claims."""


class UnbegunApi(ClaimApi, Protocol):
    """The API requests that show what exists of a group that never had a leader."""

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
    """Return the claims that may be deleted with their members: those without a pod, not even one
    that is leaving.
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
    """Ask all members concurrently. Return their answers by pod uid, without silent members.

    An address may have passed to another member of this group, or to a member of another group,
    which `is_stranger` detects. Such answers are left out as well, and those that name members that
    no group can have.
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
        if answer and answer.self_id == pod.member_id and is_possible(answer)
        if not is_stranger(answer)
    }
