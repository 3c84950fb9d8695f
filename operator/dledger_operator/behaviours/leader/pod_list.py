"""Lists the pods of a group's members, from the API server's cache where that is enough.

A LIST without a version is as new as etcd. Since Kubernetes 1.31, the server answers it when its
cache has caught up with etcd, and asks etcd for its progress every 100 ms. So a LIST takes up to
100 ms if the last write to etcd was to other objects. A LIST that may be as old as a version which
was read comes from the cache at once.
"""

from typing import Protocol

from dledger_operator import names
from dledger_operator.api_objects import ChildView, PodView, version_number
from dledger_operator.behaviours.children.ownership import Ownership, ownership
from dledger_operator.behaviours.leader.member_pods import is_member
from dledger_operator.clients.errors import KubeError
from dledger_operator.spec.group import Group


class ListApi(Protocol):
    """The API requests of this module."""

    async def member_pods(
        self, namespace: str, group: str, not_older_than: int = 0
    ) -> list[PodView]:
        """List the pods with a group's label from one LIST, which is as new as etcd, or not older
        than a version that was read.
        """

    async def child(self, kind: str, namespace: str, name: str) -> ChildView | None:
        """Get the metadata of an object; None if it does not exist."""


class PodList:
    """What is known of one group's pods."""

    def __init__(self, api: ListApi) -> None:
        self.foreign: tuple[str, ...] = ()
        """Pods of the last LIST that carry the group's label but are not its members' pods."""
        self.newest = 0
        """The newest version of a pod that was read or reported; 0 if none was."""
        self._api = api
        self._stateful_set_uids: frozenset[str] = frozenset()
        self._member_uids: frozenset[str] = frozenset()

    def saw(self, resource_version: str) -> None:
        """Record a pod's version."""
        self.newest = max(self.newest, version_number(resource_version))

    async def members(self, group: Group, *, cached: bool) -> list[PodView]:
        """List the members' pods, as new as etcd or, if `cached`, as new as the versions seen.

        The StatefulSet is read only if a pod has another owner: somebody may delete it while
        the group runs. The pods of the old one then leave while those of the new one start; a
        pod that was the master must lose its label like any other.
        """
        listed = await self._listed(group, self.newest if cached else 0)
        if any(pod.owner_uid not in self._stateful_set_uids for pod in listed):
            name = names.stateful_set(group.name)
            found = await self._api.child("StatefulSet", group.namespace, name)
            own = found is not None and ownership(found, group) in (Ownership.OWN, Ownership.ORPHAN)
            left = self._stateful_set_uids & {pod.owner_uid for pod in listed}
            self._stateful_set_uids = left | ({found.uid} if found and own else set())
        # While a StatefulSet is recreated, the pods that it left have no owner for a moment.
        members = [
            pod
            for pod in listed
            if is_member(pod, group.name, self._stateful_set_uids)
            or (not pod.owner_uid and pod.uid in self._member_uids)
        ]
        self._member_uids = frozenset(pod.uid for pod in members)
        self.foreign = tuple(pod.name for pod in listed if pod not in members)
        return members

    async def _listed(self, group: Group, not_older_than: int) -> list[PodView]:
        try:
            listed = await self._api.member_pods(group.namespace, group.name, not_older_than)
        except KubeError:
            self.newest = 0  # a server that was restored from a backup is behind the versions seen
            raise
        for pod in listed:
            self.saw(pod.resource_version)
        return listed
