"""Client of this project's own kinds: reads them, writes their status, deletes finished ones."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from lightkube import ALL_NS
from lightkube.core.resource import NamespacedResourceG, api_info
from lightkube.generic_resource import GenericNamespacedResource, create_namespaced_resource
from lightkube.models.meta_v1 import Preconditions
from lightkube.types import PatchType

from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.clients import connection, removal
from dledger_operator.clients.errors import (
    ConflictError,
    NotServedError,
    PartlyRefusedError,
    RefusedError,
)

PLURALS: Final = {
    names.GROUP_KIND: names.GROUPS_PLURAL,
    names.AUDIT_KIND: names.AUDITS_PLURAL,
    names.SWITCHOVER_KIND: names.SWITCHOVERS_PLURAL,
    names.REPLACE_KIND: names.REPLACES_PLURAL,
}
_KINDS: Final[dict[str, type[GenericNamespacedResource]]] = {
    kind: create_namespaced_resource(names.API_GROUP, names.API_VERSION, kind, plural)
    for kind, plural in PLURALS.items()
}


class _VersionMetadata(msgspec.Struct):
    uid: str
    resourceVersion: str  # noqa: N815 - the API's name


class _Version(NamespacedResourceG, msgspec.Struct):
    """An object's version. The rest of a LIST answer is skipped, which is much cheaper."""

    metadata: _VersionMetadata


_VERSIONS: Final[dict[str, type[_Version]]] = {
    kind: type(f"{kind}Version", (_Version,), {"_api_info": api_info(each)})
    for kind, each in _KINDS.items()
}


class CustomObjectClient:
    """Requests about this project's own kinds. Each raises KubeError if it fails or takes longer
    than `connection.REQUEST_S_MAX`.
    """

    def __init__(self, client: connection.ApiClient) -> None:
        self._client = client

    async def apply_status(self, kind: str, body: Mapping[str, Any], status: Manifest) -> None:
        """Replace the status of a custom resource.

        Raises NotFoundError if it does not exist, ConflictError if it has changed in the meantime
        or another object has its name now. The API server ignores a uid in a status, so the write
        carries the version of the object whose uid was read.
        """
        identity = {key: body["metadata"][key] for key in ("namespace", "name")}
        what = f"apply the status of {kind} {identity['namespace']}/{identity['name']}"
        with connection.translated(what):
            live = await self._client.get(
                _KINDS[kind], identity["name"], namespace=identity["namespace"]
            )
        if live["metadata"]["uid"] != body["metadata"]["uid"]:
            raise ConflictError(f"{what}: another object has this name now")
        manifest = {
            "apiVersion": names.API_GROUP_VERSION,
            "kind": kind,
            "metadata": {**identity, "resourceVersion": live["metadata"]["resourceVersion"]},
            "status": status,
        }
        with connection.translated(what):
            await self._client.patch(
                _KINDS[kind].Status,
                identity["name"],
                manifest,
                namespace=identity["namespace"],
                patch_type=PatchType.APPLY,
                force=True,
            )

    async def group(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Get a DLedgerGroup. Raises NotFoundError if it does not exist."""
        with connection.translated(f"get {names.GROUP_KIND} {namespace}/{name}"):
            return await self._client.get(_KINDS[names.GROUP_KIND], name, namespace=namespace)

    async def custom_objects(self, kind: str, namespace: str) -> list[Mapping[str, Any]]:
        """List the objects of one of this project's kinds."""
        with connection.translated(f"list {PLURALS[kind]} in {namespace}"):
            return [each async for each in self._client.list(_KINDS[kind], namespace=namespace)]

    async def create_custom_object(self, manifest: Manifest) -> Mapping[str, Any]:
        """Create an object of one of this project's kinds, and return it.

        Raises ConflictError if its name is taken, RefusedError if the API server refuses it.
        """
        kind, metadata = manifest["kind"], manifest["metadata"]
        with connection.translated(f"create {kind} {metadata['namespace']}/{metadata['name']}"):
            made: Mapping[str, Any] = await self._client.create(
                _KINDS[kind].from_dict(dict(manifest))
            )
        return made

    async def versions(self, kind: str, namespace: str | None) -> dict[str, str]:
        """List the resourceVersions of a kind by uid, in all namespaces if `namespace` is None."""
        with connection.translated(f"list {PLURALS[kind]} in {namespace or 'all namespaces'}"):
            listed = self._client.list(_VERSIONS[kind], namespace=namespace or ALL_NS)
            return {each.metadata.uid: each.metadata.resourceVersion async for each in listed}

    async def delete_custom_object(self, kind: str, body: Mapping[str, Any]) -> None:
        """Delete the object that was read.

        Raises NotFoundError if it is gone, ConflictError if another object has its name now.
        """
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        url = f"apis/{names.API_GROUP_VERSION}/namespaces/{namespace}/{PLURALS[kind]}/{name}"
        known = Preconditions(uid=body["metadata"]["uid"])
        await removal.delete(self._client, url, known, f"delete {kind} {namespace}/{name}")

    async def check_served(self, namespace: str | None) -> None:
        """Check that the CRDs are installed and readable. Raises KubeError with what is missing:
        RefusedError if no kind may be read, PartlyRefusedError if only some may not.
        """
        refusals = list[RefusedError]()
        for kind, plural in PLURALS.items():
            try:
                with connection.translated(f"list {plural} in {namespace or 'all namespaces'}"):
                    async for _ in self._client.list(
                        _KINDS[kind], namespace=namespace or ALL_NS, chunk_size=1
                    ):
                        break
            except NotServedError as error:
                raise NotServedError(f"{error}; install the chart's CRDs first") from error
            except RefusedError as error:
                refusals.append(error)
        if refusals:
            refused = RefusedError if len(refusals) == len(PLURALS) else PartlyRefusedError
            raise refused(
                f"{refusals[0]}; grant the chart's role to the operator's account"
            ) from refusals[0]
