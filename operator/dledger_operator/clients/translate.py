"""Translates the client library's objects into the operator's own types (`api_objects`)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from lightkube.models.batch_v1 import JobCondition
from lightkube.models.core_v1 import PodCondition
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import StatefulSet
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import ConfigMap, PersistentVolumeClaim, Pod
from lightkube.resources.discovery_v1 import EndpointSlice

from dledger_operator import names
from dledger_operator.api_objects import (
    AppliedSpec,
    ChildView,
    EndpointView,
    JobPodView,
    JobView,
    OwnerView,
    PodView,
    SettingsView,
    StatefulSetView,
    Toleration,
    VolumeClaimView,
)
from dledger_operator.clients.claim_volumes import volume_fields
from dledger_operator.clients.pod_problems import pod_problem, problem_of
from dledger_operator.spec.revision import Revision

_ENDED_PHASES: Final = ("Failed", "Succeeded")
_COUNTS: Final = frozenset(map(str, names.REPLICAS_ALLOWED))


def pod_view(pod: Pod) -> PodView:
    """Translate a member's pod."""
    metadata, status = pod.metadata, pod.status
    assert metadata is not None
    assert metadata.name is not None
    labels, annotations = metadata.labels or {}, metadata.annotations or {}
    containers = pod.spec.containers if pod.spec else []
    phase = status.phase if status else None
    return PodView(
        namespace=metadata.namespace or "",
        name=metadata.name,
        uid=metadata.uid or "",
        member_id=names.member_id(_ordinal(metadata.name)),
        ip=(status.podIP if status else None) or "",
        labels=labels,
        term=_term(annotations.get(names.TERM_ANNOTATION, "")),
        leader_pod_uid=annotations.get(names.LEADER_POD_ANNOTATION, ""),
        resource_version=metadata.resourceVersion or "",
        owner_uid=next(
            (
                owner.uid
                for owner in metadata.ownerReferences or []
                if owner.controller and owner.kind == "StatefulSet"
            ),
            "",
        ),
        leaving=metadata.deletionTimestamp is not None or phase in _ENDED_PHASES,
        ends_by=metadata.deletionTimestamp,
        ready=_condition(pod, "Ready") == "True",
        ready_since=_ready_since(pod),
        runs=_runs(pod),
        copies_archive=_copies_archive(pod),
        ended=_has_ended(pod),
        finalizers=tuple(metadata.finalizers or ()),
        problem=pod_problem(pod, names.NODE_CONTAINER),
        image=next(
            (each.image or "" for each in containers if each.name == names.NODE_CONTAINER), ""
        ),
        revision=Revision.from_text(annotations.get(names.REVISION_ANNOTATION, "")),
        founding=annotations.get(names.FOUNDING_ANNOTATION, ""),
        template_hash=labels.get(names.TEMPLATE_HASH_LABEL, ""),
        node=(pod.spec.nodeName if pod.spec else None) or "",
        tolerations=_tolerations(pod),
    )


def _tolerations(pod: Pod) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            key=each.key or "",
            operator=each.operator or "",
            value=each.value or "",
            effect=each.effect or "",
            ends=each.tolerationSeconds is not None,
        )
        for each in (pod.spec.tolerations if pod.spec else None) or []
    )


def volume_claim_view(claim: PersistentVolumeClaim) -> VolumeClaimView:
    """Translate a volume claim; its problem says why it is not bound."""
    assert claim.metadata is not None
    name = claim.metadata.name or ""
    phase = claim.status.phase if claim.status else None
    known: dict[str, Any] = {
        "namespace": claim.metadata.namespace or "",
        "name": name,
        "uid": claim.metadata.uid or "",
        "resource_version": claim.metadata.resourceVersion or "",
        "owner_references": [
            {key: value for key, value in owner.to_dict().items() if value is not None}
            for owner in claim.metadata.ownerReferences or []
        ],
        "ordinal": _ordinal(name),
        "first_voters": _first_voters(claim.metadata.annotations),
        "identity": _identity(claim.metadata.annotations),
        "leaving": claim.metadata.deletionTimestamp is not None,
        **volume_fields(claim),
    }
    if phase == "Bound" or phase is None:
        return VolumeClaimView(**known, problem=None)
    wanted = claim.spec.storageClassName if claim.spec else None
    return VolumeClaimView(
        **known,
        problem=problem_of(
            f"Volume{phase}",
            f"volume claim {name} is {phase}; its storage class is {wanted or 'the default class'}",
        ),
    )


def stateful_set_view(stateful_set: StatefulSet) -> StatefulSetView:
    """Translate a StatefulSet: the fields that reconciling must preserve."""
    metadata, spec = stateful_set.metadata, stateful_set.spec
    assert metadata is not None
    replicas = spec.replicas if spec else None
    template = spec.template if spec else None
    recorded = (template.metadata.annotations if template and template.metadata else None) or {}
    return StatefulSetView(
        namespace=metadata.namespace or "",
        name=metadata.name or "",
        uid=metadata.uid or "",
        resource_version=metadata.resourceVersion or "",
        generation=metadata.generation or 0,
        replicas=1 if replicas is None else replicas,  # the API's default
        first_voters=_first_voters(metadata.annotations),
        identity=_identity(metadata.annotations),
        leaving=metadata.deletionTimestamp is not None,
        volume_claim_templates=[
            template.to_dict() for template in (spec.volumeClaimTemplates if spec else None) or []
        ],
        template=template.to_dict() if template else {},
        revision=Revision.from_text(recorded.get(names.REVISION_ANNOTATION, "")),
        template_hash=_template_hash(stateful_set),
        applied_spec=AppliedSpec.from_text(
            (metadata.annotations or {}).get(names.APPLIED_SPEC_ANNOTATION, "")
        ),
    )


def _template_hash(stateful_set: StatefulSet) -> str:
    """Return the revision of the current template; empty until the controller has reported it."""
    metadata, status = stateful_set.metadata, stateful_set.status
    seen = (status.observedGeneration if status else None) or 0
    current = metadata is not None and seen >= (metadata.generation or 0)
    return (status.updateRevision if status and current else None) or ""


def settings_view(config_map: ConfigMap) -> SettingsView:
    """Translate the ConfigMap with a group's settings."""
    metadata = config_map.metadata
    annotations = (metadata.annotations if metadata else None) or {}
    superseded = annotations.get(names.SUPERSEDED_ANNOTATION, "").split(",")
    return SettingsView(
        data=config_map.data or {},
        resource_version=(metadata.resourceVersion if metadata else None) or "",
        note=annotations.get(names.REPLICAS_NOTE_ANNOTATION, ""),
        superseded=frozenset(int(each) for each in superseded if each in _COUNTS),
        stateful_set=annotations.get(names.STATEFUL_SET_ANNOTATION, ""),
    )


def child_view(
    kind: str, metadata: ObjectMeta, selector: Mapping[str, str] | None = None
) -> ChildView:
    """Translate the metadata of an object with the name of a group's child, and its selector."""
    return ChildView(
        kind=kind,
        name=metadata.name or "",
        uid=metadata.uid or "",
        owners=[
            OwnerView(kind=owner.kind, name=owner.name, uid=owner.uid)
            for owner in metadata.ownerReferences or []
        ],
        labels=metadata.labels or {},
        leaving=metadata.deletionTimestamp is not None,
        annotations=metadata.annotations or {},
        selector=selector or {},
    )


def endpoint_views(endpoint_slice: EndpointSlice) -> list[EndpointView]:
    """Translate the pods of an EndpointSlice; the API defines a missing `ready` as ready."""
    return [
        EndpointView(
            pod=endpoint.targetRef.name or "",
            ready=endpoint.conditions is None or endpoint.conditions.ready is not False,
        )
        for endpoint in endpoint_slice.endpoints or []
        if endpoint.targetRef is not None
    ]


def job_view(job: Job) -> JobView:
    """Translate the Job of an audit."""
    assert job.metadata is not None
    conditions = (job.status.conditions if job.status else None) or []
    failed = _true_job_condition(conditions, "Failed")
    return JobView(
        uid=job.metadata.uid or "",
        owner_uid=_owner_uid(job.metadata),
        ended=failed is not None or _true_job_condition(conditions, "Complete") is not None,
        failure=problem_of(failed.reason or "JobFailed", failed.message) if failed else None,
        started_at=job.status.startTime if job.status else None,
    )


def job_pod_view(pod: Pod) -> JobPodView:
    """Translate an audit's pod: its exit code and termination message."""
    assert pod.metadata is not None
    statuses = (pod.status.containerStatuses if pod.status else None) or []
    state = next((each.state for each in statuses if each.name == names.AUDIT_CONTAINER), None)
    ended = state.terminated if state else None
    return JobPodView(
        name=pod.metadata.name or "",
        uid=pod.metadata.uid or "",
        controller_uid=_controller_uid(pod.metadata),
        running=state is not None and state.running is not None,
        exit_code=ended.exitCode if ended else None,
        termination_message=(ended.message if ended else None) or "",
        finished_at=ended.finishedAt if ended else None,
        problem=(
            problem_of(ended.reason or "Error", f"exit code {ended.exitCode}")
            if ended and ended.exitCode
            else pod_problem(pod, names.AUDIT_CONTAINER)
        ),
    )


def _true_job_condition(conditions: list[JobCondition], kind: str) -> JobCondition | None:
    return next((each for each in conditions if each.type == kind and each.status == "True"), None)


def _condition(pod: Pod, kind: str) -> str:
    conditions: list[PodCondition] = (pod.status.conditions if pod.status else None) or []
    return next((each.status for each in conditions if each.type == kind), "Unknown")


def _ready_since(pod: Pod) -> datetime | None:
    conditions: list[PodCondition] = (pod.status.conditions if pod.status else None) or []
    since = (each.lastTransitionTime for each in conditions if each.type == "Ready")
    return next(since, None) if _condition(pod, "Ready") == "True" else None


def _runs(pod: Pod) -> bool:
    """Return whether the member's container runs; without its status, whether the pod is Ready."""
    states = [
        each.state
        for each in (pod.status.containerStatuses if pod.status else None) or []
        if each.name == names.NODE_CONTAINER
    ]
    if not states:
        return _condition(pod, "Ready") == "True"
    return any(state is not None and state.running is not None for state in states)


def _copies_archive(pod: Pod) -> bool:
    """Return whether the init container that copies the archive of a new group runs."""
    return any(
        each.name == names.SEED_CONTAINER and each.state is not None and each.state.running
        for each in (pod.status.initContainerStatuses if pod.status else None) or []
    )


def _has_ended(pod: Pod) -> bool:
    """Return whether the kubelet reports that every container has terminated. The phase is no
    proof: Kubernetes also sets it for pods whose kubelet is silent.
    """
    status = pod.status
    states = [
        each.state
        for listed in (status and status.containerStatuses, status and status.initContainerStatuses)
        for each in listed or []
    ]
    return bool(states) and all(state and state.terminated is not None for state in states)


def _ordinal(pod_name: str) -> int:
    """Return the number at the end of a pod's or claim's name; -1 if there is none."""
    text = pod_name.rpartition("-")[2]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else -1


def _term(text: str) -> int:
    """Return a term, which fits 63 bits; -1 for any other text."""
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    return value if value <= names.TERM_MAX else -1


def _owner_uid(metadata: ObjectMeta) -> str:
    return next((owner.uid for owner in metadata.ownerReferences or []), "")


def _controller_uid(metadata: ObjectMeta) -> str:
    return next((each.uid for each in metadata.ownerReferences or [] if each.controller), "")


def _first_voters(annotations: Mapping[str, str] | None) -> int | None:
    text = (annotations or {}).get(names.FIRST_VOTERS_ANNOTATION, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


def _identity(annotations: Mapping[str, str] | None) -> str:
    return (annotations or {}).get(names.IDENTITY_ANNOTATION, "")
