"""Requests that wait until a quorum has their entries; each gets the code of its outcome."""

from typing import Final

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.raft.core import Raft
from dledger_node.services.due_answers import DueAnswers
from dledger_node.services.waiting import Answer, CommitWaiters, answer_all

_UNKNOWN: Final = DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT


class QuorumWaits:
    """The waiting requests of one service, which adds them to `_waiters`."""

    def __init__(self, core: Raft, count_max: int) -> None:
        """Let requests for at most `count_max` entries wait."""
        self._core = core
        self._waiters = CommitWaiters[Answer](count_max)
        self._due = DueAnswers()

    @property
    def _is_full(self) -> bool:
        """Whether no further request may wait."""
        return self._waiters.count + self._due.count >= self._waiters.count_max

    def on_turn(self, committed_index: int) -> None:
        """Answer the requests whose outcome is decided."""
        core = self._core
        if self._waiters.count:
            leading_term = core.term if core.leads else None
            committed, unknown = self._waiters.release(committed_index, leading_term)
            self._due.answer(committed, DLedgerResponseCode.SUCCESS)
            self._due.answer(unknown, _UNKNOWN)

    @property
    def next_deadline_s(self) -> float:
        """No deadline of a waiting request is earlier than this time."""
        return self._waiters.next_deadline_s

    def expire(self, now_s: float) -> None:
        """Answer the requests that have timed out."""
        self._due.answer(self._waiters.take_expired(now_s), _UNKNOWN)

    def give_up(self) -> None:
        """Answer every request that waits: its outcome is unknown."""
        self._due.give_up(_UNKNOWN)
        answer_all(self._waiters.take_all(), _UNKNOWN)
