"""Changes of the leader: logged, and reported to requests that wait for them."""

import asyncio
import logging

from dledger_node.http import status
from dledger_node.raft.core import Raft

logger = logging.getLogger(__name__)


class LeaderWatch:
    """Compares the core's leader with the one that was reported last."""

    def __init__(self, core: Raft) -> None:
        self.changes = 0
        """How many leaders of different terms this member has known."""
        self._core = core
        self._counted_term = -1
        self._reported_leader = self._leader()
        self._leader_changed = asyncio.Event()
        self._reported_joining = ""

    def on_turn(self, committed_index: int) -> None:
        """Report a change of the leader, or of the reason why a joining member waits."""
        leader, joining = self._leader(), self._core.joining
        if leader != self._reported_leader:
            logger.info("leader: %s", status.leader_view(self._core))
            term, leader_id, _ = leader
            if leader_id is not None and term != self._counted_term:
                self._counted_term = term
                self.changes += 1
            self._reported_leader = leader
            self._leader_changed.set()
            self._leader_changed = asyncio.Event()
        if joining != self._reported_joining:
            logger.warning("joining: %s", joining or "done, this member may vote now")
            self._reported_joining = joining

    async def leader_changed(self) -> None:
        """Return once the token of `leader_view` differs from the one at the call."""
        await self._leader_changed.wait()

    def _leader(self) -> tuple[int, str | None, bool]:
        """Return the values that the token of `leader_view` depends on."""
        return self._core.term, self._core.leader_id, self._core.master
