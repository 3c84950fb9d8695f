"""What changed at this member that others wait for, or that a person reads in the log."""

import asyncio
import logging

from dledger_node.http import status
from dledger_node.raft.core import Raft

logger = logging.getLogger(__name__)


class LeaderWatch:
    """Compares what the core says with what was told before."""

    def __init__(self, core: Raft) -> None:
        self._core = core
        self._leader_told = self._leader()
        self._leader_changed = asyncio.Event()
        self._joining_told = ""

    def settle(self) -> None:
        """Tell what is new; called after everything the core was given."""
        leader, joining = self._leader(), self._core.joining
        if leader != self._leader_told:
            logger.info("leader: %s", status.leader_view(self._core))
            self._leader_told = leader
            self._leader_changed.set()
            self._leader_changed = asyncio.Event()
        if joining != self._joining_told:
            logger.warning("joining: %s", joining or "done, this member votes now")
            self._joining_told = joining

    async def leader_changed(self) -> None:
        """Return once `leader_view` has another token than at the call."""
        await self._leader_changed.wait()

    def _leader(self) -> tuple[int, str | None, bool]:
        """All that the token of `leader_view` depends on."""
        return self._core.term, self._core.leader_id, self._core.master
