"""Requests about Leases: read, create and renew them."""

from datetime import datetime
from typing import Final

from lightkube import AsyncClient
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease
from lightkube.types import PatchType

from dledger_operator import names
from dledger_operator.api_objects import LeaseView
from dledger_operator.clients import connection
from dledger_operator.clients.errors import NotFoundError

_LABELS: Final = {names.MANAGED_BY_LABEL: names.FIELD_MANAGER}


class LeaseClient:
    """Requests about Leases. Each raises KubeError if it fails."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def get(self, namespace: str, name: str) -> LeaseView | None:
        """Get a Lease; None if it does not exist."""
        try:
            with connection.translated(f"get Lease {namespace}/{name}"):
                return _view(await self._client.get(Lease, name, namespace=namespace))
        except NotFoundError:
            return None

    async def create(
        self, namespace: str, name: str, *, holder: str, duration_s: int, now: datetime
    ) -> LeaseView:
        """Create a Lease that `holder` holds. Raises ConflictError if it already exists."""
        spec = LeaseSpec(
            holderIdentity=holder,
            leaseDurationSeconds=duration_s,
            acquireTime=now,
            renewTime=now,
            leaseTransitions=0,
        )
        metadata = ObjectMeta(name=name, namespace=namespace, labels=_LABELS)
        with connection.translated(f"create Lease {namespace}/{name}"):
            return _view(await self._client.create(Lease(metadata=metadata, spec=spec)))

    async def renew(
        self, lease: LeaseView, *, holder: str, duration_s: int, now: datetime
    ) -> LeaseView:
        """Record that `holder` holds a Lease from now on; an empty `holder` releases it.

        Raises ConflictError if the Lease has changed since it was read.
        """
        spec: dict[str, object] = {
            "holderIdentity": holder,
            "leaseDurationSeconds": duration_s,
            "renewTime": _micro_time(now),
        }
        if holder and holder != lease.holder:
            spec |= {"acquireTime": _micro_time(now), "leaseTransitions": lease.transitions + 1}
        patch = {"metadata": {"resourceVersion": lease.resource_version}, "spec": spec}
        with connection.translated(f"renew Lease {lease.namespace}/{lease.name}"):
            return _view(
                await self._client.patch(
                    Lease,
                    lease.name,
                    patch,
                    namespace=lease.namespace,
                    patch_type=PatchType.MERGE,
                )
            )


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _view(lease: Lease) -> LeaseView:
    metadata, spec = lease.metadata or ObjectMeta(), lease.spec or LeaseSpec()
    return LeaseView(
        namespace=metadata.namespace or "",
        name=metadata.name or "",
        resource_version=metadata.resourceVersion or "",
        holder=spec.holderIdentity or "",
        duration_s=float(spec.leaseDurationSeconds or 0),
        transitions=spec.leaseTransitions or 0,
    )
