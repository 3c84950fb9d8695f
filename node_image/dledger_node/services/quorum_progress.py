"""Whether a leader's entries still become committed; if not, it must not take others."""

from dledger_node.raft.core import Raft
from dledger_node.services.waiting import ANSWER_WAIT_S


class QuorumProgress:
    """Watches the committed index. The owner asks before each proposal, and passes in the time.

    A leader whose peers have no room still hears their heartbeats, so it goes on leading. What it
    has proposed may be committed once they have room. What it proposes now would wait behind that.
    """

    def __init__(self, core: Raft) -> None:
        self._core = core
        self._seen: tuple[int, int] = (-1, -1)
        self._since_s = 0.0

    def is_stuck(self, now_s: float) -> bool:
        """Whether entries have waited for `ANSWER_WAIT_S`, and none was committed meanwhile."""
        core = self._core
        seen = (core.term, core.readable_index)
        if seen != self._seen or core.ledger_end_index == core.readable_index:
            self._seen, self._since_s = seen, now_s
            return False
        return now_s - self._since_s >= ANSWER_WAIT_S
