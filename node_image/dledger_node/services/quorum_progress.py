"""Checks whether a leader's entries still get committed; if not, it must not take others."""

import logging

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.raft.core import Raft
from dledger_node.services.waiting import ANSWER_WAIT_S

logger = logging.getLogger(__name__)


class QuorumProgress:
    """Watches the committed index and the followers' room. The owner asks before each proposal, and
    passes in the time.

    A leader whose peers have no room still receives their answers to heartbeats, so it keeps
    leading. Entries that it has proposed may be committed once the peers have room. New entries
    would wait behind those.
    """

    def __init__(self, core: Raft) -> None:
        self._core = core
        self._seen: tuple[int, int] = (-1, -1)
        self._since_s = 0.0
        self._lacked_room = False

    def refusal(self, now_s: float) -> DLedgerResponseCode | None:
        """Return the code with which appends must be refused now; None if they can be proposed.

        DISK_FULL: so many followers have reported full volumes that no majority would take another
        entry. LEADER_NOT_READY: nothing gets committed, and the cause is not known.
        """
        lacks_room = self._core.lacks_room
        if lacks_room is not self._lacked_room:
            self._lacked_room = lacks_room
            self._report()
        if lacks_room:
            return DLedgerResponseCode.DISK_FULL
        return DLedgerResponseCode.LEADER_NOT_READY if self.is_stuck(now_s) else None

    def is_stuck(self, now_s: float) -> bool:
        """Return whether entries have waited for `ANSWER_WAIT_S` while none was committed."""
        core = self._core
        seen = (core.term, core.readable_index)
        if seen != self._seen or core.ledger_end_index == core.readable_index:
            self._seen, self._since_s = seen, now_s
            return False
        return now_s - self._since_s >= ANSWER_WAIT_S

    def _report(self) -> None:
        if self._lacked_room:
            logger.warning(
                "appends are refused with DISK_FULL: the volumes of %s are full, so no majority "
                "has room for another entry",
                ", ".join(self._core.full_peers),
            )
        else:
            logger.warning("appends are taken again: a majority may have room")
