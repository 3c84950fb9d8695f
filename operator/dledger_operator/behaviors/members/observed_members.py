"""Judges a group's members by what was read: their pods, their volume claims, their own status."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dledger_formats.http.status import NodeStatus
from dledger_operator import names, reasons
from dledger_operator.api_objects import CreationFailure, PodView, VolumeClaimView
from dledger_operator.behaviors.members import stuck_pods
from dledger_operator.behaviors.members.settings_in_force import WantedSettings
from dledger_operator.behaviors.volumes.growth import VolumeUse, why_full
from dledger_operator.observed_state import Membership, ObservedMember
from dledger_operator.problem import Problem
from dledger_operator.spec.group import Group
from dledger_operator.spec.revision import Revision, why_behind


@dataclass(frozen=True)
class MemberReads:
    """What was read about a group's members."""

    pods: Sequence[PodView]
    claims: Sequence[VolumeClaimView] = ()
    answers: Mapping[str, NodeStatus] = field(default_factory=dict)
    """The members' own status by the uid of their pod, without those of silent members."""
    failures: Sequence[CreationFailure] = ()
    """Why pods could not be created, latest first."""
    strangers: Mapping[str, str] = field(default_factory=dict)
    """The other groups that answer in place of pods, by the pods' uids: name and identity of
    each.
    """


@dataclass(frozen=True)
class _Parts:
    """What was read about one member; None is missing."""

    pod: PodView | None
    claim: VolumeClaimView | None
    status: NodeStatus | None
    failure: CreationFailure | None
    stranger: str


class MemberJudge:
    """Judges the members of a group against its spec."""

    def __init__(
        self,
        group: Group,
        membership: Membership,
        *,
        wanted: Revision | None = None,
        not_live: frozenset[str] = frozenset(),
        now: datetime | None = None,
        node_ready: Callable[[str], bool | None] = lambda _: None,
    ) -> None:
        """Create a judge. `wanted` is the revision that the spec asks for; None while it is not
        known. `not_live` is as in `WantedSettings`. `now` decides whether a pod should have ended
        and whether a volume may grow. `node_ready` returns whether the Node of a name is Ready;
        None if it is not known.
        """
        self._group = group
        self._membership = membership
        self._wanted = wanted
        self._settings = WantedSettings(group, not_live) if wanted else None
        self._now = now
        self._node_ready = node_ready

    def members(self, reads: MemberReads) -> tuple[ObservedMember, ...]:
        """Return every member that the spec asks for, that has a pod, or that belongs to the group,
        by ordinal.
        """
        existing = {names.ordinal(pod.member_id) for pod in reads.pods}
        existing |= set(map(names.ordinal, self._membership.voters | self._membership.learners))
        pods = {pod.name: pod for pod in reads.pods}
        claims = {claim.name: claim for claim in reads.claims}
        latest_failures = {each.pod: each for each in reversed(reads.failures)}

        def parts(pod_name: str) -> _Parts:
            pod = pods.get(pod_name)
            return _Parts(
                pod=pod,
                claim=claims.get(names.volume_claim(pod_name)),
                status=reads.answers.get(pod.uid) if pod else None,
                failure=latest_failures.get(pod_name),
                stranger=reads.strangers.get(pod.uid, "") if pod else "",
            )

        count = max(self._group.replicas, 1 + max(existing, default=-1))
        pod_names = (names.pod(self._group.name, ordinal) for ordinal in range(count))
        return tuple(
            self._member(names.member_id(ordinal), pod_name, parts(pod_name))
            for ordinal, pod_name in enumerate(pod_names)
        )

    def _member(self, member_id: str, pod_name: str, parts: _Parts) -> ObservedMember:
        pod, claim, status = parts.pod, parts.claim, parts.status
        reason = _why_not_ready(pod, status, parts.stranger)
        return ObservedMember(
            member_id=member_id,
            pod=pod_name,
            role=self._role(pod),
            membership=self._membership.role_of(member_id),
            exists=pod is not None,
            leaving=pod is not None and pod.leaving,
            ready=not reason,
            reason=reason,
            problem=self._problem(parts),
            danger=_danger(pod, claim),
            status=status,
            image=pod.image if pod else "",
            revision=pod.revision.name if pod and pod.revision else "",
            behind=why_behind(pod.revision, self._wanted) if pod and self._wanted else "",
            volume_requested=claim.requested if claim else "",
            volume_capacity=claim.capacity if claim else "",
            lacks=self._settings.lacking(status) if status and self._settings else "",
        )

    def _role(self, pod: PodView | None) -> str:
        wanted = self._group.roles
        roles = {wanted.master: names.ROLE_MASTER, wanted.slave: names.ROLE_SLAVE}
        return roles.get(pod.role(wanted), names.ROLE_NONE) if pod else names.ROLE_NONE

    def _problem(self, parts: _Parts) -> Problem | None:
        """Return a member's problem: the claim's before the pod's, which it causes."""
        pod, claim = parts.pod, parts.claim
        if pod and self._now:
            late = stuck_pods.stuck(pod, self._now, self._node_ready(pod.node))
            if late:
                return late
        if pod is None and parts.failure:
            return Problem(reason=reasons.FAILED_CREATE, message=parts.failure.message)
        found = claim.problem if claim and claim.problem else pod.problem if pod else None
        return found or self._full_volume(claim, parts.status)

    def _full_volume(
        self, claim: VolumeClaimView | None, status: NodeStatus | None
    ) -> Problem | None:
        """Return why a member's full volume does not grow; None if it is not full, or grows."""
        if claim is None or status is None or self._now is None or self._group.paused:
            return None
        return why_full(self._group.storage, claim, VolumeUse.of(status), self._now)


def _danger(pod: PodView | None, claim: VolumeClaimView | None) -> Problem | None:
    if pod is None or claim is None or not claim.leaving:
        return None
    if claim.replaced_by:
        message = (
            f"volume claim {claim.name} is gone as soon as pod {pod.name} ends: "
            f"{names.REPLACE_KIND} {claim.replaced_by} gives {pod.member_id} a new volume, and "
            "its status says how far it is"
        )
        return Problem(reason=reasons.VOLUME_TERMINATING, message=message)
    message = (
        f"volume claim {claim.name} was deleted and is gone as soon as pod {pod.name} ends, and "
        "the member's log with it; once all other members are ready, delete the pod: the member "
        "comes back empty and the leader sends it the log"
    )
    return Problem(reason=reasons.VOLUME_TERMINATING, message=message)


def _why_not_ready(pod: PodView | None, status: NodeStatus | None, stranger: str) -> str:
    if pod is None:
        return "the pod does not exist"
    if pod.leaving:
        return "the pod is terminating"
    if pod.problem:
        return f"{pod.problem.reason}: {pod.problem.message}"
    if not pod.ip:
        return "the pod is starting"
    if status is None and stranger:
        return (
            f"a member of another group answers: {stranger}; if the pod was made before the "
            "identity of this group changed, delete the pod"
        )
    if status is None:
        return f"no answer on port {names.HTTP_PORT}"
    if not status.ready:
        return status.reason or "the member does not serve its role yet"
    if not pod.ready:
        return "the pod's readiness probe does not succeed yet"
    return ""
