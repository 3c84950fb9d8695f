"""Proposals to the core: which entries must wait for room, and which are refused.

`append` and `drafts` collect entries, and follow them to their end. What is between is here.
"""

import asyncio
from collections.abc import Callable, Sequence

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.raft.core import Raft
from dledger_node.raft.proposals import Proposal, Refusal
from dledger_node.services.proposed import ProposedEntries
from dledger_node.services.quorum_progress import QuorumProgress
from dledger_node.services.refusals import PROPOSAL_CODES, Room
from dledger_node.store.log.log_store import LogStore


class Proposer:
    """Proposes the entries of one service, which runs the core's work afterwards."""

    def __init__(self, core: Raft, store: LogStore, room: Room) -> None:
        self._core, self._store, self._room = core, store, room
        self._progress = QuorumProgress(core)
        self._now_s = asyncio.get_running_loop().time

    def must_wait(
        self, entry_count: int, body_bytes: int, sizes: Callable[[], Sequence[int]]
    ) -> bool:
        """Return whether entries must wait until a thread has made room for them.

        `sizes` returns the sizes of the bodies that are to be written; it is called only if they
        may not fit.
        """
        if self._room.is_busy:
            return True
        if self._store.room.is_ample(entry_count, body_bytes):
            return False
        body_sizes = sizes()
        return bool(body_sizes) and self._room.begin(body_sizes)

    def propose(
        self, entries: ProposedEntries, sizes: Sequence[int]
    ) -> Proposal | DLedgerResponseCode:
        """Propose entries with bodies of these sizes, or return the code of the refusal.

        The entries of a refusal are not in the log, and never will be.
        """
        refused = self._room.reserve(sizes) or self._progress.refusal(self._now_s())
        if refused is not None:
            return refused
        proposal = self._core.propose(len(sizes), entries)
        return PROPOSAL_CODES[proposal.reason] if isinstance(proposal, Refusal) else proposal
