"""The latest results of a group's control loops, combined into the group's observed state."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from dledger_formats.http.status import NodeStatus
from dledger_operator import names
from dledger_operator.api_objects import (
    EndpointView,
    Problem,
    StatefulSetView,
    VolumeClaimView,
)
from dledger_operator.behaviours.children.reconcile import ReconcileResult
from dledger_operator.behaviours.leader import endpoints
from dledger_operator.behaviours.leader.follow_leader import FollowResult
from dledger_operator.behaviours.members import observe
from dledger_operator.behaviours.members.membership import recorded_membership
from dledger_operator.behaviours.members.scale_steps import ScaleState
from dledger_operator.behaviours.members.startup_grace import StartupGracePeriod
from dledger_operator.observed_state import Membership, ObservedEndpoints, ObservedGroup
from dledger_operator.spec.group import Group, ImageDefaults
from dledger_operator.spec.shape import Shape
from dledger_operator.spec.spec_reader import InvalidSpecError


@dataclass(slots=True, kw_only=True)
class GroupSnapshot:
    """The latest findings of one group's control loops; each loop updates its own part."""

    namespace: str
    name: str
    group: Group | None
    """The parsed spec, or at least the keys that following the leader needs; None if even those are
    invalid.
    """
    membership: Membership
    startup: StartupGracePeriod
    reconciled: ReconcileResult = field(default_factory=ReconcileResult)
    followed: FollowResult = field(default_factory=FollowResult)
    endpoints: list[EndpointView] | None = None
    """Endpoints of the master Service; None until they were read once."""
    claims: list[VolumeClaimView] = field(default_factory=list)
    """The group's volume claims, read only while a pod is missing or not ready."""
    answers: dict[str, NodeStatus] | None = None
    """The members' statuses by pod uid; None until the members were asked once."""

    @classmethod
    def of(cls, body: Mapping[str, Any], images: ImageDefaults) -> "GroupSnapshot":
        """Return the snapshot of a group of which only the object has been read so far."""
        metadata, group = body["metadata"], group_to_follow(body, images)
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            group=group,
            membership=recorded_membership(body.get("status") or {}, group),
            startup=StartupGracePeriod(datetime.fromisoformat(metadata["creationTimestamp"])),
        )

    @property
    def is_complete(self) -> bool:
        """Whether every loop has run at least once and a leader is known."""
        observed = self.endpoints is not None and self.answers is not None
        return observed and self.followed.leader is not None

    def judge_endpoints(self) -> ObservedEndpoints:
        """Compare the master Service's endpoints with the leader."""
        return endpoints.judge(
            self.endpoints or [],
            service=names.master_service(self.name),
            leader_pod=self.followed.leader_pod,
        )

    def scale_state(self, group: Group, shape: Shape, stateful_set: StatefulSetView) -> ScaleState:
        """Return the input of the next scaling step."""
        answers = self.answers or {}
        pods = [pod for pod in self.followed.pods if not pod.leaving]
        return ScaleState(
            replicas=group.replicas,
            shape=replace(shape, pods=stateful_set.replicas),
            leader=self.followed.leader,
            membership=self.membership,
            answers={pod.member_id: answers[pod.uid] for pod in pods if pod.uid in answers},
        )

    def pod_ips(self) -> dict[str, str]:
        """Return the pod IPs by member id, without pods that are leaving."""
        pods = self.followed.pods
        return {pod.member_id: pod.ip for pod in pods if pod.ip and not pod.leaving}

    def observe(self, now: datetime, scaling_problem: Problem | None) -> ObservedGroup:
        """Combine all parts into the observed state; this may end the startup grace period."""
        group, followed, shape = self.group, self.followed, self.reconciled.shape
        members = (
            observe.members(group, followed.pods, self.claims, self.answers or {}, self.membership)
            if group
            else ()
        )
        return ObservedGroup(
            namespace=self.namespace,
            name=self.name,
            replicas=group.replicas if group else 0,
            first_voters=shape.first_voters if shape else None,
            membership=self.membership,
            leader=followed.leader,
            disputed=followed.disputed,
            members=members,
            endpoints=self.judge_endpoints(),
            paused=group.paused if group else False,
            problem=self.reconciled.problem,
            warning=self.reconciled.warning,
            scaling_problem=scaling_problem,
            starting=self.startup.is_active(members, now),
        )


def group_to_follow(body: Mapping[str, Any], images: ImageDefaults) -> Group | None:
    """Parse a group's spec, or at least the keys that following needs; None if they are invalid."""
    for read in (Group.from_body, Group.to_follow):
        try:
            return read(body, images)
        except InvalidSpecError:
            continue
    return None
