"""Client of the Kubernetes API, which returns the operator's own types and errors."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Self

import msgspec
from lightkube.core.resource import NamespacedResource
from lightkube.models.meta_v1 import ObjectMeta, Preconditions
from lightkube.resources.apps_v1 import StatefulSet
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import (
    ConfigMap,
    Event,
    Node,
    PersistentVolumeClaim,
    Pod,
    Service,
    ServiceAccount,
)
from lightkube.resources.discovery_v1 import EndpointSlice
from lightkube.resources.networking_v1 import NetworkPolicy
from lightkube.resources.policy_v1 import PodDisruptionBudget
from lightkube.resources.rbac_authorization_v1 import RoleBinding
from lightkube.types import PatchType

from dledger_operator import names, reasons
from dledger_operator.api_objects import (
    ChildView,
    CreationFailure,
    EndpointView,
    Manifest,
    PodView,
    VolumeClaimView,
)
from dledger_operator.clients import connection, field_owners, pod_problems, removal, translate
from dledger_operator.clients.admin_tokens import TokenClient
from dledger_operator.clients.errors import NotFoundError, RefusedError
from dledger_operator.clients.leases import LeaseClient
from dledger_operator.clients.node_facts import NodeFacts
from dledger_operator.clients.stateful_sets import StatefulSetClient

_APPLICABLE: Final[dict[str, type[NamespacedResource]]] = {
    kind.__name__: kind
    for kind in (
        ConfigMap, Event, Job, NetworkPolicy, PodDisruptionBudget, RoleBinding, Service,
        ServiceAccount, StatefulSet,
    )
}  # fmt: skip

NODES_AT_ONCE: Final = 250
"""Nodes in one LIST answer, so that none holds up the event loop, which follows leaders."""


class KubeApi(StatefulSetClient):
    """The operator's requests to the API server. Each raises KubeError if it fails or takes longer
    than `connection.REQUEST_S_MAX`.
    """

    def __init__(self, client: connection.ApiClient) -> None:
        super().__init__(client)
        self.leases = LeaseClient(client)
        self.tokens = TokenClient(client)

    @classmethod
    def open(cls) -> Self:
        """Open a client with `connection.client`."""
        return cls(connection.client())

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._client.config.cluster.server

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()

    async def apply(self, manifest: Manifest) -> None:
        """Create or update an object by server-side apply; take over the fields in `manifest`, and
        those that others have added to the parts that the operator owns wholly.
        """
        metadata, kind = manifest["metadata"], manifest["kind"]
        with connection.translated(f"apply {kind} {metadata['namespace']}/{metadata['name']}"):
            applied = (await self._apply(manifest)).metadata
            assert isinstance(applied, ObjectMeta)
            entries = [each.to_dict() for each in applied.managedFields or ()]
            owned = field_owners.taken_over(kind, entries, names.FIELD_MANAGER)
            if owned is None:
                return
            before = {"resourceVersion": applied.resourceVersion}
            taken: Any = await self._client.patch(
                _APPLICABLE[kind],
                metadata["name"],
                {"metadata": before | {"managedFields": owned}},
                namespace=metadata["namespace"],
                patch_type=PatchType.MERGE,
            )
            # Only this version: scaling may have changed the replicas since.
            after = {"resourceVersion": taken.metadata.resourceVersion}
            await self._apply({**manifest, "metadata": metadata | after})

    async def _apply(self, manifest: Manifest) -> Any:
        metadata = manifest["metadata"]
        return await self._client.patch(
            _APPLICABLE[manifest["kind"]],
            metadata["name"],
            manifest,
            namespace=metadata["namespace"],
            patch_type=PatchType.APPLY,
            force=True,
        )

    async def child(self, kind: str, namespace: str, name: str) -> ChildView | None:
        """Get an object of an applicable kind as a ChildView; None if it does not exist."""
        try:
            with connection.translated(f"get {kind} {namespace}/{name}"):
                found = await self._client.get(_APPLICABLE[kind], name, namespace=namespace)
        except NotFoundError:
            return None
        metadata = getattr(found, "metadata", None)
        assert isinstance(metadata, ObjectMeta)
        spec = found.spec if isinstance(found, Service) else None
        return translate.child_view(kind, metadata, spec.selector if spec else None)

    async def delete_network_policy(self, namespace: str, policy: ChildView) -> None:
        """Delete the NetworkPolicy that was read.

        Raises ConflictError if another one has its name now, NotFoundError if it is gone.
        """
        url = f"apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies/{policy.name}"
        what = f"delete NetworkPolicy {namespace}/{policy.name}"
        await removal.delete(self._client, url, Preconditions(uid=policy.uid), what)

    async def may_list_nodes(self) -> bool:
        """Return whether Nodes may be read."""
        try:
            with connection.translated("list nodes"):
                async for _ in self._client.list(Node, chunk_size=1):
                    break
        except RefusedError:
            return False
        return True

    async def nodes(self) -> list[Manifest]:
        """List all Nodes in their latest state, with the fields that the operator reads."""
        with connection.translated("list nodes"):
            listed = self._client.list(NodeFacts, chunk_size=NODES_AT_ONCE)
            return [msgspec.to_builtins(each) async for each in listed]

    async def creation_failures(self, namespace: str, uid: str) -> list[CreationFailure]:
        """List why pods of the StatefulSet with this uid could not be created, latest first."""
        with connection.translated(f"list the Events of a StatefulSet in {namespace}"):
            found = self._client.list(
                Event,
                namespace=namespace,
                fields={"involvedObject.uid": uid, "reason": reasons.FAILED_CREATE},
            )
            return pod_problems.creation_failures([event async for event in found])

    async def member_pods(
        self, namespace: str, group: str, not_older_than: int = 0
    ) -> list[PodView]:
        """List the pods with a group's label by one LIST, sorted by name; not all are members.

        The list is in the latest state or, which is faster, not older than a version that was read.
        """
        labels = {names.GROUP_LABEL: group}
        with connection.translated(f"list the pods of {namespace}/{group}"):
            found = self._client.list_labeled(
                Pod, namespace=namespace, labels=labels, not_older_than=not_older_than
            )
            views = [translate.pod_view(pod) async for pod in found]
        return sorted(views, key=lambda view: view.name)

    async def relabel_pod(
        self, pod: PodView, labels: Mapping[str, str | None], annotations: Mapping[str, str]
    ) -> PodView:
        """Set labels and annotations of a pod; a label that is None is removed.

        Raises ConflictError if the pod has changed since it was read, NotFoundError if it is gone.
        """
        patch = {
            "metadata": {
                "resourceVersion": pod.resource_version,
                "labels": dict(labels),
                "annotations": dict(annotations),
            }
        }
        with connection.translated(f"relabel pod {pod.namespace}/{pod.name}"):
            changed = await self._client.patch(
                Pod, pod.name, patch, namespace=pod.namespace, patch_type=PatchType.MERGE
            )
        return translate.pod_view(changed)

    async def replace_pod(self, pod: PodView) -> None:
        """Remove the pod that was read, so that the StatefulSet recreates it.

        Raises ConflictError if it has changed since it was read or another pod has its name,
        NotFoundError if it is gone, EvictionRefusedError if a budget does not permit it.
        """
        await removal.remove_pod(self._client, pod)

    async def service_endpoints(self, namespace: str, service: str) -> list[EndpointView]:
        """List the pods behind a Service from all its EndpointSlices."""
        with connection.translated(f"list the EndpointSlices of {namespace}/{service}"):
            slices = self._client.list(
                EndpointSlice, namespace=namespace, labels={names.SERVICE_NAME_LABEL: service}
            )
            return [view async for each in slices for view in translate.endpoint_views(each)]

    async def volume_claims(self, namespace: str, group: str) -> list[VolumeClaimView]:
        """List a group's volume claims, sorted by name.

        Claims whose names are not the StatefulSet's are left out, even with the group's label.
        """
        with connection.translated(f"list the volume claims of {namespace}/{group}"):
            claims = self._client.list(
                PersistentVolumeClaim, namespace=namespace, labels={names.GROUP_LABEL: group}
            )
            views = [translate.volume_claim_view(claim) async for claim in claims]
        own = (
            view
            for view in views
            if view.name == names.volume_claim(names.pod(group, view.ordinal))
        )
        return sorted(own, key=lambda view: view.name)

    async def volume_claim(self, namespace: str, name: str) -> VolumeClaimView | None:
        """Get a volume claim, regardless of its labels; None if it does not exist."""
        try:
            with connection.translated(f"get volume claim {namespace}/{name}"):
                found = await self._client.get(PersistentVolumeClaim, name, namespace=namespace)
        except NotFoundError:
            return None
        return translate.volume_claim_view(found)

    async def set_claim_owners(
        self, claim: VolumeClaimView, owners: Sequence[Mapping[str, Any]]
    ) -> None:
        """Replace the owner references of a volume claim.

        Raises ConflictError if it has changed since it was read, NotFoundError if it is gone.
        """
        await self._patch_claim(claim, {"ownerReferences": list(owners)}, "set the owners of")

    async def correct_first_voters(self, claim: VolumeClaimView, first_voters: int) -> None:
        """Record another number of first voters on a claim. Raises as `set_claim_owners` does."""
        annotations = {names.FIRST_VOTERS_ANNOTATION: str(first_voters)}
        await self._patch_claim(claim, {"annotations": annotations}, "correct the record of")

    async def grow_volume_claim(
        self, claim: VolumeClaimView, size: str, grown_at: datetime | None
    ) -> None:
        """Ask for a larger volume; `grown_at` is recorded, if it is given.

        Raises ConflictError if the claim has changed since it was read, NotFoundError if it is
        gone, RefusedError if its storage class or a quota does not allow it.
        """
        annotations = {names.GROWN_AT_ANNOTATION: names.timestamp(grown_at)} if grown_at else {}
        spec = {"resources": {"requests": {"storage": size}}}
        await self._patch_claim(claim, {"annotations": annotations}, "grow", spec)

    async def delete_volume_claim(self, claim: VolumeClaimView) -> None:
        """Delete the volume claim of a removed member, and mark it as such first.

        Raises ConflictError if it has changed since it was read, NotFoundError if it is gone.
        """
        await self._mark_and_delete(claim, {names.MEMBER_REMOVED_ANNOTATION: "true"})

    async def delete_claim_of_lost_member(self, claim: VolumeClaimView, replacement: str) -> None:
        """Delete the volume claim of a member that a `DLedgerReplace` of this name replaces, and
        mark it as such first. Kubernetes keeps the claim until no pod uses it.

        Raises ConflictError if it has changed since it was read, NotFoundError if it is gone.
        """
        await self._mark_and_delete(claim, {names.MEMBER_REPLACED_ANNOTATION: replacement})

    async def _mark_and_delete(self, claim: VolumeClaimView, mark: Mapping[str, str]) -> None:
        marked = await self._patch_claim(claim, {"annotations": dict(mark)}, "mark")
        url = f"api/v1/namespaces/{claim.namespace}/persistentvolumeclaims/{claim.name}"
        metadata = marked.metadata
        known = Preconditions(
            uid=metadata.uid if metadata else None,
            resourceVersion=metadata.resourceVersion if metadata else None,
        )
        what = f"delete volume claim {claim.namespace}/{claim.name}"
        await removal.delete(self._client, url, known, what)

    async def _patch_claim(
        self, claim: VolumeClaimView, change: Manifest, verb: str, spec: Manifest | None = None
    ) -> PersistentVolumeClaim:
        patch = {"metadata": {"resourceVersion": claim.resource_version, **change}}
        patch |= {"spec": spec} if spec else {}
        with connection.translated(f"{verb} volume claim {claim.namespace}/{claim.name}"):
            return await self._client.patch(
                PersistentVolumeClaim,
                claim.name,
                patch,
                namespace=claim.namespace,
                patch_type=PatchType.MERGE,
            )
