"""A fake pod store with the API server's rules: versions grow, a stale patch conflicts, and a LIST
is consistent, but may be as old as the client allows.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from dledger_kube.objects import STATEFUL_SET_UID
from dledger_operator import names
from dledger_operator.api_objects import ChildView, OwnerView, PodView
from dledger_operator.clients.errors import ConflictError, NotFoundError

LISTS_KEPT: Final = 64


class PodStore:
    """Pods by name; `on_change` receives all pods after every change, as a watcher would."""

    def __init__(
        self, pods: Iterable[PodView] = (), on_change: Callable[[list[PodView]], None] | None = None
    ) -> None:
        self._pods: dict[str, PodView] = {}
        self._version = 0
        self._lists: list[tuple[int, list[PodView]]] = [(0, [])]
        """The pods after each change, with its version; the last `LISTS_KEPT`."""
        self.lists: list[int] = []
        """The version that each LIST asked for."""
        self._on_change = on_change or (lambda _: None)
        self.stateful_set_uid = STATEFUL_SET_UID
        self.patches: list[tuple[str, dict[str, str | None]]] = []
        """Successful patches: pod name and labels."""
        self.conflicts = 0
        """Patches that the follower counted as conflicts."""
        for pod in pods:
            self.put(pod)

    def pods(self) -> list[PodView]:
        """Return all pods, sorted by name."""
        return [self._pods[name] for name in sorted(self._pods)]

    def put(self, pod: PodView) -> PodView:
        """Create or replace a pod, as another client would; its version grows."""
        self._version += 1
        stored = replace(pod, resource_version=str(self._version))
        self._pods[pod.name] = stored
        self._changed()
        return stored

    def count_conflict(self) -> None:
        """Count a conflict, as the metric does."""
        self.conflicts += 1

    def delete(self, name: str) -> None:
        """Delete a pod."""
        self._version += 1
        del self._pods[name]
        self._changed()

    def _changed(self) -> None:
        self._lists = [*self._lists, (self._version, self.pods())][-LISTS_KEPT:]
        self._on_change(self.pods())

    def pods_since(self, version: int) -> list[list[PodView]]:
        """Return every result that a LIST not older than a version may give, oldest first."""
        last = max(at for at, _ in self._lists if at <= version or at == self._lists[0][0])
        return [pods for at, pods in self._lists if at >= last]

    async def member_pods(
        self, namespace: str, group: str, not_older_than: int = 0
    ) -> list[PodView]:
        """Return all pods as they are now."""
        del namespace, group
        self.lists.append(not_older_than)
        return self.pods()

    async def child(self, kind: str, namespace: str, name: str) -> ChildView | None:
        """Return the group's StatefulSet; there is no Service."""
        if kind == "Service":
            return None
        assert (kind, namespace, name) == ("StatefulSet", "air", "flights")
        owner = OwnerView(kind="DLedgerGroup", name="flights", uid="group-uid")
        return ChildView(
            kind=kind,
            name=name,
            uid=self.stateful_set_uid,
            owners=[owner],
            labels={},
            leaving=False,
        )

    async def relabel_pod(
        self, pod: PodView, labels: Mapping[str, str | None], annotations: Mapping[str, str]
    ) -> PodView:
        """Patch a pod. Raises ConflictError if it has changed since it was read."""
        return self.relabel(pod, labels, annotations)

    def relabel(
        self, pod: PodView, labels: Mapping[str, str | None], annotations: Mapping[str, str]
    ) -> PodView:
        """Patch a pod synchronously; see `relabel_pod`."""
        stored = self._pods.get(pod.name)
        if stored is None:
            raise NotFoundError(pod.name)
        if (stored.uid, stored.resource_version) != (pod.uid, pod.resource_version):
            raise ConflictError(pod.name)
        self.patches.append((pod.name, dict(labels)))
        after = {**stored.labels, **labels}
        kept = {key: value for key, value in after.items() if value is not None}
        term = int(annotations.get(names.TERM_ANNOTATION, stored.term))
        leader_pod_uid = annotations.get(names.LEADER_POD_ANNOTATION, stored.leader_pod_uid)
        return self.put(replace(stored, labels=kept, term=term, leader_pod_uid=leader_pod_uid))
