"""Reads the endpoints of a group's master Service, and compares them with its leader."""

from collections.abc import Callable, Sequence
from typing import Final

from dledger_operator import names
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.leader.leader_history import PhaseTime

WRONG_S: Final = 30.0
"""How soon the operator reads endpoints that are wrong again, even without an event."""


class EndpointsCheck:
    """The check of one group's endpoints."""

    def __init__(
        self,
        context: Context,
        snapshot: GroupSnapshot,
        on_change: Callable[[], None],
        on_phases: Callable[[Sequence[PhaseTime]], None],
    ) -> None:
        """Create a check. `on_change` is called after a change of the endpoints, `on_phases` with
        the phases of a leader change that have ended.
        """
        self._context = context
        self._snapshot = snapshot
        self._on_change = on_change
        self._on_phases = on_phases

    async def run_once(self) -> float | None:
        """Read and compare. Return the seconds until the next check; None if events suffice."""
        snapshot = self._snapshot
        if snapshot.group is None:
            return None
        service = names.master_service(snapshot.name)
        found = await self._context.api.service_endpoints(snapshot.namespace, service)
        if found != snapshot.endpoints:
            snapshot.endpoints = found
            self._on_change()
        history, synced = snapshot.history, snapshot.judge_endpoints().synced
        if synced and snapshot.followed.leader == history.leader:
            self._on_phases(history.endpoints_synced(self._context.clock()))
        return None if synced or snapshot.hibernates else WRONG_S
