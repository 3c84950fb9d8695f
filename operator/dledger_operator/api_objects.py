"""The fields of Kubernetes objects that the operator reads, as plain values.

`clients.translate` builds these from the API server's answers. Decisions and conditions depend on
these types alone, never on the client library's models.
"""

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Self, TypeAlias

from dledger_formats.admin_tokens import AdminTokens
from dledger_operator.problem import Problem
from dledger_operator.spec.group import Roles
from dledger_operator.spec.revision import Revision

_APPLIED_SPEC: Final = re.compile(r"([0-9]{1,18}) ([0-9a-f]+)(?: ([0-9A-Za-z.-]+))?")
LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object as plain JSON, ready to be applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A toleration of a pod, as in Kubernetes; empty fields match everything."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    ends: bool = False
    """Whether the toleration has a time limit, after which the pod is evicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A member's pod."""

    namespace: str
    name: str
    uid: str
    member_id: str
    ip: str
    """The pod's address; empty until it has one."""
    labels: Mapping[str, str]
    term: int
    """The term annotation, which the operator never decreases; -1 if it is missing or invalid."""
    leader_pod_uid: str = ""
    """UID of the pod whose leadership the role and the term reflect; empty if it is not known."""
    resource_version: str
    owner_uid: str
    """UID of the StatefulSet that owns the pod; empty if none does."""
    leaving: bool
    """Whether the pod is being deleted or has terminated, so that it will not serve again."""
    ends_by: datetime | None = None
    """When the kubelet should have ended the pod; None unless it is being deleted."""
    ready: bool
    """Whether the kubelet's readiness probe succeeds."""
    ready_since: datetime | None = None
    """Since when the probe succeeds; None if it does not, or if the time is not known."""
    runs: bool = True
    """Whether the kubelet reports that the member's container runs."""
    copies_archive: bool = False
    """Whether the kubelet reports that the init container that copies `spec.seed` runs."""
    ended: bool = False
    """Whether the kubelet reports that every container has terminated."""
    finalizers: Sequence[str] = ()
    """What keeps the object after the kubelet has ended the pod."""
    problem: Problem | None
    """Why the pod does not start, as reported by the kubelet or the scheduler."""
    image: str = ""
    """The image of the member's container."""
    revision: Revision | None = None
    """What the pod was built from; None for a pod of an earlier release of the operator."""
    founding: str = ""
    """The initial group state when the pod was created."""
    template_hash: str = ""
    """The StatefulSet's revision that the pod was built from, as its controller reports."""
    node: str = ""
    """The name of the node that the pod runs on; empty until it is scheduled."""
    tolerations: Sequence[Toleration] = ()

    def role(self, roles: Roles) -> str:
        """Return the value of the role label; empty if the pod has no such label."""
        return self.labels.get(roles.label, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeClaimView:
    """A member's PersistentVolumeClaim."""

    namespace: str = ""
    name: str
    uid: str = ""
    resource_version: str = ""
    owner_references: Sequence[Mapping[str, Any]] = ()
    ordinal: int
    """The ordinal of the claim's member; -1 if the name ends in no number."""
    first_voters: int | None
    """The first-voters annotation, from `Shape.first_voters` when the claim was created. None if it
    is missing or invalid, as on a claim that a user created by hand.
    """
    identity: str
    """The group's identity, from the claim's annotation; empty if it is missing."""
    leaving: bool
    """Whether the claim is being deleted."""
    problem: Problem | None
    """Why the claim is not bound."""
    volume: str = ""
    """The name of the PersistentVolume that the claim is bound to; empty if there is none."""
    replaced_by: str = ""
    """The name of the DLedgerReplace that deleted the claim; empty if none did."""
    requested: str = ""
    """The size that the claim asks for, as written; empty if it is not known."""
    capacity: str = ""
    """The size of its volume, as Kubernetes reports it; empty before it is bound."""
    resizing: str = ""
    """What Kubernetes reports about a change of the size that is in progress."""
    resize_failed: bool = False
    """Whether Kubernetes reports that the volume cannot be grown."""
    grown_at: datetime | None = None
    """When the operator last grew the claim automatically; None for never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerView:
    """An entry of an object's owner references."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildView:
    """An object with the kind and name of a group's child, no matter which client created it."""

    kind: str
    name: str
    uid: str
    owners: Sequence[OwnerView]
    labels: Mapping[str, str]
    leaving: bool
    """Whether the object is being deleted."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    selector: Mapping[str, str] = field(default_factory=dict)
    """The labels by which a Service selects pods; empty for other kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationFailure:
    """Why the API server refused a pod that the StatefulSet controller wanted to create."""

    pod: str
    message: str
    at: datetime | None = field(default=None, compare=False)
    """When the pod was last refused; None if not known. A repetition is the same failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsView:
    """The ConfigMap that holds a group's settings."""

    data: Mapping[str, str]
    resource_version: str = ""
    note: str = ""
    """The replicas of a StatefulSet that the operator recreates; empty if it recreates none."""
    superseded: frozenset[int] = frozenset()
    """The numbers of first voters of earlier foundings, none of which has begun."""
    stateful_set: str = ""
    """The StatefulSet that the ConfigMap names (`founded_again.fence`); empty if it names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedSpec:
    """The spec that a StatefulSet's pod template was built from."""

    generation: int
    """The group's `metadata.generation`."""
    digest: str
    """A digest of the fields of the spec that pods are built from, as the user wrote them."""
    uid: str = ""
    """The group's `metadata.uid`; empty in records of earlier releases."""

    def to_text(self) -> str:
        """Write an annotation's value."""
        return f"{self.generation} {self.digest} {self.uid}".rstrip()

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Read an annotation's value; None if it is missing or not in this form."""
        match = _APPLIED_SPEC.fullmatch(text)
        if match is None:
            return None
        return cls(generation=int(match[1]), digest=match[2], uid=match[3] or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulSetView:
    """A group's StatefulSet."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int = 0
    """The object's `metadata.generation`, which rises with each change of its spec."""
    replicas: int
    first_voters: int | None
    """The first-voters annotation; None if it is missing or invalid."""
    identity: str
    """The group's identity, from the annotation; empty if it is missing."""
    leaving: bool = False
    """Whether it is being deleted."""
    volume_claim_templates: Sequence[Manifest]
    """Immutable: the API server rejects any change of these templates."""
    template: Manifest = field(default_factory=dict)
    """The pod template."""
    revision: Revision | None = None
    """The revision of pods made from the template; None for a template of an earlier release."""
    template_hash: str = ""
    """The StatefulSet's own revision of the template; empty until its controller has seen it."""
    applied_spec: AppliedSpec | None = None
    """The spec that the template was built from; None if an earlier release did not record it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointView:
    """One address behind a Service; a dual-stack pod has two."""

    pod: str
    ready: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """The Job of an audit."""

    uid: str
    owner_uid: str
    ended: bool
    failure: Problem | None
    started_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPodView:
    """A pod of an audit's Job, or of an executor."""

    name: str
    uid: str
    controller_uid: str
    """UID of what created the pod: the Job, or the pod of the executor's driver."""
    running: bool
    exit_code: int | None
    """The container's exit code; None until it has terminated."""
    termination_message: str
    finished_at: datetime | None
    problem: Problem | None


class TokenPhase(enum.StrEnum):
    """How far the replacement of a group's administration token is (`admin_tokens.rotation`)."""

    SETTLED = "Settled"
    INTRODUCED = "Introduced"
    REPLACED = "Replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEntry:
    """The administration tokens of a group, and what is known about them."""

    uid: str = ""
    """The group's `metadata.uid`; empty if the record was lost."""
    phase: TokenPhase = TokenPhase.SETTLED
    since: datetime = LONG_AGO
    """Since when the entry is in this phase."""
    rotated_at: str = ""
    """The last value of `spec.adminToken.rotatedAt` that was seen."""
    tokens: AdminTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSecretView:
    """The Secret with the administration tokens of a namespace's groups."""

    resource_version: str
    is_ours: bool
    """Whether the operator created the Secret."""
    entries: Mapping[str, TokenEntry]
    """The entries by group name."""
    with_audit_tokens: frozenset[str] = frozenset()
    """The groups whose stored audit tokens match their entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """A Lease of coordination.k8s.io: at most one holder at a time acts."""

    namespace: str
    name: str
    resource_version: str
    holder: str
    """The identity of the holder; empty if the last one released the Lease."""
    duration_s: float
    """The Lease is free when its holder has not renewed it for this long."""
    transitions: int
    """How often the Lease has passed to another holder."""


def version_number(resource_version: str) -> int:
    """Return a resourceVersion as a number; 0 if it is not a number. Kubernetes allows clients to
    compare the versions of one kind.
    """
    is_number = resource_version.isascii() and resource_version.isdigit()
    return int(resource_version) if is_number else 0
