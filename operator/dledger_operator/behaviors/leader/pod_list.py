"""Lists the pods with a group's label, from the API server's cache where that is enough.

A LIST without a version is as new as etcd. Since Kubernetes 1.31, the server answers it when its
cache has caught up with etcd, and asks etcd for its progress every 100 ms. So a LIST takes up to
100 ms if the last write to etcd was to other objects. A LIST that may be as old as a version which
was read comes from the cache at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, Self

from dledger_operator import names
from dledger_operator.api_objects import ChildView, PodView, version_number
from dledger_operator.behaviors.children.ownership import Ownership, ownership
from dledger_operator.behaviors.leader.member_pods import is_member, is_named_as_member
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPods:
    """The pods with a group's label, from one LIST."""

    members: tuple[PodView, ...]
    unbelieved: tuple[PodView, ...]
    """Pods that have the names of members' pods, but are not."""
    foreign: tuple[PodView, ...]
    """All others."""

    def with_changed(self, changed: Mapping[str, PodView]) -> Self:
        """Return the pods with those that were fenced or promoted since, by their uids."""

        def now(pods: tuple[PodView, ...]) -> tuple[PodView, ...]:
            return tuple(changed.get(pod.uid, pod) for pod in pods)

        return replace(self, members=now(self.members), unbelieved=now(self.unbelieved))

    @property
    def foreign_names(self) -> tuple[str, ...]:
        """The names of the pods that somebody has given the group's label. Pods that end with the
        StatefulSet that made them are not among them.
        """
        staying = (pod for pod in self.unbelieved if not pod.leaving)
        return tuple(sorted(pod.name for pod in (*staying, *self.foreign)))


class PodList:
    """What is known of one group's pods."""

    def __init__(self, api: ListApi) -> None:
        self.newest = 0
        """The newest version of a pod that was read or reported; 0 if none was."""
        self._api = api
        self._stateful_set_uids: frozenset[str] = frozenset()
        self._member_uids: frozenset[str] = frozenset()

    def saw(self, resource_version: str) -> None:
        """Record a pod's version."""
        self.newest = max(self.newest, version_number(resource_version))

    async def read(self, group: Group, *, cached: bool) -> GroupPods:
        """List the pods, as new as etcd or, if `cached`, as new as the versions seen.

        The StatefulSet is read only if a pod has another owner: somebody may delete it while
        the group runs. The pods of the old one then leave while those of the new one start.
        """
        listed = await self._listed(group, self.newest if cached else 0)
        if any(pod.owner_uid not in self._stateful_set_uids for pod in listed):
            name = names.stateful_set(group.name)
            found = await self._api.child("StatefulSet", group.namespace, name)
            own = found is not None and ownership(found, group) in (Ownership.OWN, Ownership.ORPHAN)
            self._stateful_set_uids = frozenset({found.uid} if found and own else ())
        # While a StatefulSet is recreated, the pods that it left have no owner for a moment.
        members = tuple(
            pod
            for pod in listed
            if is_member(pod, group.name, self._stateful_set_uids)
            or (not pod.owner_uid and pod.uid in self._member_uids)
        )
        self._member_uids = frozenset(pod.uid for pod in members)
        others = [pod for pod in listed if pod.uid not in self._member_uids]
        named = {pod.uid for pod in others if is_named_as_member(pod, group.name)}
        return GroupPods(
            members=members,
            unbelieved=tuple(pod for pod in others if pod.uid in named),
            foreign=tuple(pod for pod in others if pod.uid not in named),
        )

    async def _listed(self, group: Group, not_older_than: int) -> list[PodView]:
        try:
            listed = await self._api.member_pods(group.namespace, group.name, not_older_than)
        except KubeError:
            self.newest = 0  # a server that was restored from a backup is behind the versions seen
            raise
        for pod in listed:
            self.saw(pod.resource_version)
        return listed
