"""Takes the role away from pods that only carry the group's label.

The master and the slave Service select pods by labels alone, so a foreign pod with both labels gets
requests of clients. It may belong to somebody else, so the operator removes nothing but the role
label, and only a value by which a Service selects, from the version that was read with the group's
label. Nobody ever believes such a pod, so no promotion depends on the removal.

The removal need not last. A client may give the role again. And if the labels come from the
template of a controller that selects by them, the controller lets go of the pod and makes another
one. So only so many are made at once. After these, a pod that has not lost its role before keeps
it, and others lose it once a minute, until no foreign pod has had a role for a while.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.children.child_edits import AT_ONCE_MAX, QUIET_S_MIN
from dledger_operator.clients.errors import KubeError
from dledger_operator.spec.group import Group

logger = logging.getLogger(__name__)

AGAIN_S: Final = 60.0


class RelabelApi(Protocol):
    """The API request of this module."""

    async def relabel_pod(
        self, pod: PodView, labels: Mapping[str, str | None], annotations: Mapping[str, str]
    ) -> PodView:
        """Patch a pod. Raises ConflictError if it has changed since it was read."""


class ForeignRoles:
    """The roles of the foreign pods of one group."""

    def __init__(self, api: RelabelApi, clock: Callable[[], float]) -> None:
        """Create; `clock` returns monotonic seconds."""
        self._api = api
        self._clock = clock
        self._removals = 0
        """How many were tried since no foreign pod had a role for a while."""
        self._tried: set[str] = set()
        """The uids of their pods."""
        self._tried_s = self._seen_s = -math.inf
        """When the last removal was tried, and when a foreign pod had a role last."""

    async def remove(self, group: Group, foreign: Sequence[PodView]) -> None:
        """Remove the roles of these pods of one LIST, as far as that is due.

        A failure is logged only: it must not keep the leader from its label. A pod that has changed
        since the LIST causes an event.
        """
        roles = group.roles
        carrying = [pod for pod in foreign if pod.role(roles) in (roles.master, roles.slave)]
        due = self._due(carrying) if carrying else []
        await asyncio.gather(*(self._remove(group, pod) for pod in due))

    def _due(self, carrying: Sequence[PodView]) -> list[PodView]:
        now = self._clock()
        if now - self._seen_s >= QUIET_S_MIN:
            self._removals, self._tried = 0, set()
        self._seen_s = now
        due = [*carrying[: max(0, AT_ONCE_MAX - self._removals)]]
        if not due and now - self._tried_s >= AGAIN_S:
            due = [pod for pod in carrying if pod.uid in self._tried]
        if due:
            self._tried_s = now
            self._removals += len(due)
            self._tried.update(pod.uid for pod in due)
        return due

    async def _remove(self, group: Group, pod: PodView) -> None:
        role = f"{group.roles.label}={pod.role(group.roles)}"
        where = f"{group.namespace}/{group.name}: pod {pod.name}"
        try:
            await self._api.relabel_pod(pod, {group.roles.label: None}, {})
        except KubeError as error:
            logger.warning("%s is not the group's, but keeps %s for now: %s", where, role, error)
        else:
            logger.warning("%s is not the group's, and has lost %s", where, role)
