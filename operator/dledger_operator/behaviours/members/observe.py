"""Gathers what is known of a group's members: their pods, their volumes and their own words."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from dledger_formats.http.status import MembershipRole, NodeStatus
from dledger_operator import names
from dledger_operator.clients.errors import MemberSilentError
from dledger_operator.facts import Electorate, MemberFacts
from dledger_operator.spec.group import Group
from dledger_operator.views import PodView, Trouble, VolumeView


class StatusPages(Protocol):
    """What is asked of members."""

    async def status(self, ip: str) -> NodeStatus:
        """A member's whole status; MemberSilentError in a known time."""


async def statuses(pages: StatusPages, pods: Sequence[PodView]) -> dict[str, NodeStatus]:
    """Ask all members at once, and keep the answers by pod uid."""

    async def ask(pod: PodView) -> NodeStatus | None:
        try:
            return await pages.status(pod.ip)
        except MemberSilentError:
            return None

    asked = [pod for pod in pods if pod.ip]
    answers = await asyncio.gather(*map(ask, asked))
    return {pod.uid: answer for pod, answer in zip(asked, answers, strict=True) if answer}


def members(
    group: Group,
    pods: Sequence[PodView],
    volumes: Sequence[VolumeView],
    answers: Mapping[str, NodeStatus],
    electorate: Electorate,
) -> tuple[MemberFacts, ...]:
    """Put together what is known of each member that there should be, or is."""
    there = {names.ordinal(pod.member_id) for pod in pods}
    there |= {names.ordinal(each) for each in electorate.voters | electorate.learners}
    pod_of = {pod.name: pod for pod in pods}
    volume_of = {volume.name: volume for volume in volumes}
    return tuple(
        _member(
            group,
            member_id,
            pod_name,
            pod_of.get(pod_name),
            volume_of.get(names.volume_claim(pod_name)),
            answers,
            electorate.role_of(member_id),
        )
        for ordinal in range(max(group.replicas, 1 + max(there, default=-1)))
        for member_id, pod_name in [(names.member_id(ordinal), names.pod(group.name, ordinal))]
    )


def _member(
    group: Group,
    member_id: str,
    pod_name: str,
    pod: PodView | None,
    volume: VolumeView | None,
    answers: Mapping[str, NodeStatus],
    membership: MembershipRole,
) -> MemberFacts:
    status = answers.get(pod.uid) if pod else None
    reason = _why_not_ready(pod, status)
    return MemberFacts(
        member_id=member_id,
        pod=pod_name,
        role=_role(group, pod),
        membership=membership,
        exists=pod is not None,
        ready=not reason,
        reason=reason,
        trouble=_trouble(pod, volume),
        status=status,
    )


def _role(group: Group, pod: PodView | None) -> str:
    words = {group.roles.master: names.ROLE_MASTER, group.roles.slave: names.ROLE_SLAVE}
    return words.get(pod.role(group.roles), names.ROLE_NONE) if pod else names.ROLE_NONE


def _trouble(pod: PodView | None, volume: VolumeView | None) -> Trouble | None:
    """The volume's trouble tells more than that of the pod which waits for it."""
    if volume and volume.trouble:
        return volume.trouble
    return pod.trouble if pod else None


def _why_not_ready(pod: PodView | None, status: NodeStatus | None) -> str:
    if pod is None:
        return "there is no pod"
    if pod.leaving:
        return "the pod is leaving"
    if pod.trouble:
        return f"{pod.trouble.reason}: {pod.trouble.message}"
    if not pod.ip:
        return "the pod is starting"
    if status is None:
        return f"no answer on port {names.HTTP_PORT}"
    if not status.ready:
        return status.reason or "it does not serve its role yet"
    if not pod.ready:
        return "the kubelet does not find the pod ready yet"
    return ""
