"""A group's StatefulSet, and the ConfigMap with its settings, which records its founding."""

from collections.abc import Mapping, Sequence

from lightkube.resources.apps_v1 import StatefulSet
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import PatchType

from dledger_operator import names
from dledger_operator.api_objects import Manifest, SettingsView, StatefulSetView
from dledger_operator.clients import connection, removal, translate
from dledger_operator.clients.errors import NotFoundError
from dledger_operator.clients.jobs import JobClient


class StatefulSetClient(JobClient):
    """Reads and changes both objects. Each request raises KubeError if it fails."""

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView | None:
        """Get a group's StatefulSet; None if it does not exist."""
        try:
            with connection.translated(f"get StatefulSet {namespace}/{name}"):
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
        with connection.translated(f"set the replicas of StatefulSet {where} to {replicas}"):
            await self._client.patch(
                StatefulSet,
                stateful_set.name,
                patch,
                namespace=stateful_set.namespace,
                patch_type=PatchType.MERGE,
            )

    async def orphan_stateful_set(self, stateful_set: StatefulSetView) -> None:
        """Delete a StatefulSet and leave its pods.

        Raises ConflictError if it has changed since it was read, NotFoundError if it is gone.
        """
        await removal.remove_stateful_set(self._client, stateful_set, "Orphan")

    async def delete_stateful_set(self, stateful_set: StatefulSetView) -> None:
        """Delete a StatefulSet after its pods. Raises as `orphan_stateful_set` does."""
        await removal.remove_stateful_set(self._client, stateful_set, "Foreground")

    async def settings(self, namespace: str, config_map: str) -> SettingsView | None:
        """Get the ConfigMap with a group's settings; None if it does not exist."""
        try:
            with connection.translated(f"get ConfigMap {namespace}/{config_map}"):
                found = await self._client.get(ConfigMap, config_map, namespace=namespace)
        except NotFoundError:
            return None
        return translate.settings_view(found)

    async def note_replicas(self, namespace: str, config_map: str, note: str | None) -> None:
        """Record the replicas of a StatefulSet that is being recreated; None removes the note."""
        patch = {"metadata": {"annotations": {names.REPLICAS_NOTE_ANNOTATION: note}}}
        await self._patch_settings(namespace, config_map, patch, "note the replicas")

    async def record_founding(
        self,
        namespace: str,
        config_map: str,
        settings: SettingsView,
        data: Mapping[str, str],
        superseded: Sequence[int],
    ) -> None:
        """Write the settings of a founding, and the numbers of first voters that it supersedes.

        Raises ConflictError if the ConfigMap has changed since `settings` were read.
        """
        earlier = ",".join(map(str, sorted(superseded)))
        annotations = {names.SUPERSEDED_ANNOTATION: earlier}
        metadata = {"annotations": annotations, "resourceVersion": settings.resource_version}
        patch = {"metadata": metadata, "data": data}
        await self._patch_settings(namespace, config_map, patch, "record the founding")

    async def _patch_settings(
        self, namespace: str, config_map: str, patch: Manifest, what: str
    ) -> None:
        with connection.translated(f"{what} on ConfigMap {namespace}/{config_map}"):
            await self._client.patch(
                ConfigMap, config_map, patch, namespace=namespace, patch_type=PatchType.MERGE
            )
