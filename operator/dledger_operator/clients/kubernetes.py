"""Client of the Kubernetes API, which returns the operator's own types and errors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self

import httpx2
from lightkube import ALL_NS, ApiError, AsyncClient
from lightkube.config.client_adapter import verify_cluster
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError
from lightkube.core.resource import NamespacedResource
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources.apps_v1 import StatefulSet
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import (
    ConfigMap,
    Event,
    PersistentVolumeClaim,
    Pod,
    Service,
    ServiceAccount,
)
from lightkube.resources.discovery_v1 import EndpointSlice
from lightkube.resources.policy_v1 import PodDisruptionBudget
from lightkube.types import PatchType

from dledger_operator import names
from dledger_operator.api_objects import (
    EndpointView,
    JobPodView,
    JobView,
    Manifest,
    PodView,
    SettingsView,
    StatefulSetView,
    VolumeClaimView,
)
from dledger_operator.clients import translate
from dledger_operator.clients.errors import (
    ConflictError,
    KubeError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)

REQUEST_S_MAX: Final = 5.0
CONNECT_S_MAX: Final = 2.0
CONNECTIONS_MAX: Final = 100
CONNECTIONS_KEPT_MAX: Final = 20
CONNECTION_KEPT_S: Final = 60.0

DLedgerGroup: Final = create_namespaced_resource(
    names.API_GROUP, names.API_VERSION, names.GROUP_KIND, names.GROUPS_PLURAL
)
DLedgerAudit: Final = create_namespaced_resource(
    names.API_GROUP, names.API_VERSION, names.AUDIT_KIND, names.AUDITS_PLURAL
)
_APPLICABLE: Final[dict[str, type[NamespacedResource]]] = {
    kind.__name__: kind
    for kind in (
        ConfigMap, Event, Job, PodDisruptionBudget, Service, ServiceAccount, StatefulSet,
    )
}  # fmt: skip
_STATUS_OF: Final = {
    names.GROUP_KIND: DLedgerGroup.Status,
    names.AUDIT_KIND: DLedgerAudit.Status,
}
_ERROR_OF_CODE: Final[dict[int, type[KubeError]]] = {
    400: RefusedError, 401: RefusedError, 403: RefusedError, 404: NotFoundError,
    405: RefusedError, 409: ConflictError, 410: ConflictError, 422: RefusedError,
}  # fmt: skip


class KubeApi:
    """The operator's requests to the API server. Each raises KubeError if it fails or takes longer
    than `REQUEST_S_MAX`.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    @classmethod
    def open(cls) -> Self:
        """Connect as the pod's ServiceAccount or, outside a cluster, with the kubeconfig.

        Idle connections stay open between requests: a TLS handshake would make relabeling several
        times slower.
        """
        config = _configuration()
        transport = httpx2.AsyncHTTPTransport(
            verify=verify_cluster(config.cluster, config.user or User(), config.abs_file),
            limits=httpx2.Limits(
                max_connections=CONNECTIONS_MAX,
                max_keepalive_connections=CONNECTIONS_KEPT_MAX,
                keepalive_expiry=CONNECTION_KEPT_S,
            ),
        )
        return cls(
            AsyncClient(
                config=config,
                transport=transport,
                timeout=httpx2.Timeout(REQUEST_S_MAX, connect=CONNECT_S_MAX),
                field_manager=names.FIELD_MANAGER,
            )
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()

    async def apply(self, manifest: Manifest) -> None:
        """Create or update an object by server-side apply; take over the fields in `manifest`."""
        metadata, kind = manifest["metadata"], manifest["kind"]
        with _translated(f"apply {kind} {metadata['namespace']}/{metadata['name']}"):
            await self._client.patch(
                _APPLICABLE[kind],
                metadata["name"],
                manifest,
                namespace=metadata["namespace"],
                patch_type=PatchType.APPLY,
                force=True,
            )

    async def apply_status(self, kind: str, body: Mapping[str, Any], status: Manifest) -> None:
        """Replace the status of a custom resource. Raises NotFoundError if it does not exist."""
        identity = {key: body["metadata"][key] for key in ("namespace", "name")}
        manifest = {
            "apiVersion": names.API_GROUP_VERSION,
            "kind": kind,
            "metadata": identity,
            "status": status,
        }
        with _translated(f"apply the status of {kind} {identity['namespace']}/{identity['name']}"):
            await self._client.patch(
                _STATUS_OF[kind],
                identity["name"],
                manifest,
                namespace=identity["namespace"],
                patch_type=PatchType.APPLY,
                force=True,
            )

    async def group(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Get a DLedgerGroup. Raises NotFoundError if it does not exist."""
        with _translated(f"get {names.GROUP_KIND} {namespace}/{name}"):
            return await self._client.get(DLedgerGroup, name, namespace=namespace)

    async def check_served(self, namespace: str | None) -> None:
        """Check that the CRDs are installed and readable. Raises KubeError with what is missing."""
        for kind, plural in (
            (DLedgerGroup, names.GROUPS_PLURAL),
            (DLedgerAudit, names.AUDITS_PLURAL),
        ):
            try:
                with _translated(f"list {plural} in {namespace or 'all namespaces'}"):
                    async for _ in self._client.list(
                        kind, namespace=namespace or ALL_NS, chunk_size=1
                    ):
                        break
            except NotFoundError as error:
                raise NotFoundError(f"{error}; install the chart's CRDs first") from error
            except RefusedError as error:
                raise RefusedError(
                    f"{error}; grant the chart's role to the operator's account"
                ) from error

    async def member_pods(self, namespace: str, group: str) -> list[PodView]:
        """List a group's pods from one LIST, sorted by name.

        Pods whose names are not the StatefulSet's are left out, even with the group's label.
        """
        with _translated(f"list the pods of {namespace}/{group}"):
            found = self._client.list(Pod, namespace=namespace, labels={names.GROUP_LABEL: group})
            views = [translate.pod_view(pod) async for pod in found]
        own = (view for view in views if view.name == f"{group}-{view.member_id[1:]}")
        return sorted(own, key=lambda view: view.name)

    async def relabel_pod(
        self, pod: PodView, labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> PodView:
        """Set labels and annotations of a pod.

        Raises ConflictError if the pod has changed since it was read, NotFoundError if it is gone.
        """
        patch = {
            "metadata": {
                "resourceVersion": pod.resource_version,
                "labels": dict(labels),
                "annotations": dict(annotations),
            }
        }
        with _translated(f"relabel pod {pod.namespace}/{pod.name}"):
            changed = await self._client.patch(
                Pod, pod.name, patch, namespace=pod.namespace, patch_type=PatchType.MERGE
            )
        return translate.pod_view(changed)

    async def service_endpoints(self, namespace: str, service: str) -> list[EndpointView]:
        """List the pods behind a Service from all its EndpointSlices."""
        with _translated(f"list the EndpointSlices of {namespace}/{service}"):
            slices = self._client.list(
                EndpointSlice, namespace=namespace, labels={names.SERVICE_NAME_LABEL: service}
            )
            return [view async for each in slices for view in translate.endpoint_views(each)]

    async def volume_claims(self, namespace: str, group: str) -> list[VolumeClaimView]:
        """List a group's volume claims, sorted by name."""
        with _translated(f"list the volume claims of {namespace}/{group}"):
            claims = self._client.list(
                PersistentVolumeClaim, namespace=namespace, labels={names.GROUP_LABEL: group}
            )
            views = [translate.volume_claim_view(claim) async for claim in claims]
        return sorted(views, key=lambda view: view.name)

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView | None:
        """Get a group's StatefulSet; None if it does not exist."""
        try:
            with _translated(f"get StatefulSet {namespace}/{name}"):
                found = await self._client.get(StatefulSet, name, namespace=namespace)
        except NotFoundError:
            return None
        return translate.stateful_set_view(found)

    async def set_replicas(self, stateful_set: StatefulSetView, replicas: int) -> None:
        """Set the replicas of a StatefulSet.

        Raises ConflictError if it has changed since it was read, NotFoundError if it is gone.
        """
        patch = {
            "metadata": {"resourceVersion": stateful_set.resource_version},
            "spec": {"replicas": replicas},
        }
        where = f"{stateful_set.namespace}/{stateful_set.name}"
        with _translated(f"set the replicas of StatefulSet {where} to {replicas}"):
            await self._client.patch(
                StatefulSet,
                stateful_set.name,
                patch,
                namespace=stateful_set.namespace,
                patch_type=PatchType.MERGE,
            )

    async def settings(self, namespace: str, config_map: str) -> SettingsView | None:
        """Get the ConfigMap with a group's settings; None if it does not exist."""
        try:
            with _translated(f"get ConfigMap {namespace}/{config_map}"):
                found = await self._client.get(ConfigMap, config_map, namespace=namespace)
        except NotFoundError:
            return None
        return translate.settings_view(found)

    async def job(self, namespace: str, name: str) -> JobView | None:
        """Get a Job; None if it does not exist."""
        try:
            with _translated(f"get Job {namespace}/{name}"):
                return translate.job_view(await self._client.get(Job, name, namespace=namespace))
        except NotFoundError:
            return None

    async def job_pods(self, namespace: str, job: str) -> list[JobPodView]:
        """List the pods of a Job."""
        with _translated(f"list the pods of Job {namespace}/{job}"):
            pods = self._client.list(Pod, namespace=namespace, labels={names.JOB_NAME_LABEL: job})
            return [translate.job_pod_view(pod) async for pod in pods]


def _configuration() -> SingleConfig:
    try:
        config = KubeConfig.from_env().get()
    except ConfigError as error:
        raise UnavailableError(
            f"neither a ServiceAccount nor a kubeconfig was found for the API server: {error}"
        ) from error
    assert config is not None, "get() raises when it finds nothing"
    return config


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn the library's errors into KubeErrors whose message starts with the request."""
    try:
        yield
    except ApiError as error:
        kind = _ERROR_OF_CODE.get(error.status.code or 500, UnavailableError)
        raise kind(f"{what}: {error.status.message}") from error
    except httpx2.HTTPStatusError as error:
        # The API server answers with a 404 in plain text for a kind that it does not serve.
        kind = _ERROR_OF_CODE.get(error.response.status_code, UnavailableError)
        raise kind(f"{what}: {error.response.text.strip() or error}") from error
    except httpx2.HTTPError as error:
        raise UnavailableError(f"{what}: {str(error) or type(error).__name__}") from error
