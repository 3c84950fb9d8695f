"""What the API server says of a group's pods, volumes and endpoints, as far as anybody here cares.

The full objects stay in `kube`; decisions and conditions are made from these few fields.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from dledger_operator.spec.group import Roles

Manifest: TypeAlias = dict[str, Any]
"""An object as the API takes it: plain JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a pod or a volume does not come up, in Kubernetes' own words."""

    reason: str
    """CamelCase, fit for a condition."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """One member's pod."""

    namespace: str
    name: str
    uid: str
    member_id: str
    ip: str
    """Empty until the pod has one."""
    labels: Mapping[str, str]
    term: int
    """The term of the last relabelling, from the annotation that never goes back; -1 for none."""
    resource_version: str
    leaving: bool
    """It is being deleted, or has ended: it will not serve again."""
    ready: bool
    """The kubelet's readiness probe succeeds."""
    trouble: Trouble | None

    def role(self, roles: Roles) -> str:
        """The role label's value; empty when there is none."""
        return self.labels.get(roles.label, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeView:
    """One member's volume claim."""

    name: str
    ordinal: int
    """Its member's; -1 for a claim that is no member's."""
    first_voters: int | None
    """As `Shape.first_voters` was when it was made; None for one of an earlier version."""
    leaving: bool
    """It is being deleted."""
    trouble: Trouble | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsView:
    """The ConfigMap with a group's settings."""

    owner_uid: str
    """Empty when nobody owns it."""
    data: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulSetView:
    """The StatefulSet of a group."""

    namespace: str
    name: str
    owner_uid: str
    """As of the settings."""
    resource_version: str
    replicas: int
    first_voters: int | None
    """As of a volume claim."""
    volume_claim_templates: Sequence[Manifest]
    """They can never change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointView:
    """One address of a Service; a pod with two address families has two."""

    pod: str
    ready: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """The Job of an audit."""

    owner_uid: str
    ended: bool
    failure: Trouble | None
    started_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPodView:
    """A pod of an audit's Job."""

    name: str
    running: bool
    exit_code: int | None
    """None while the container has not ended."""
    termination_message: str
    finished_at: datetime | None
    trouble: Trouble | None
