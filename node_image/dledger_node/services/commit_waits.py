"""Reads that wait until an entry is committed, for a time that the client chooses.

At most a fixed number of requests wait. A further request releases the oldest, which is answered
without entries; its client then asks again. So no request is refused, and memory stays bounded.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from dledger_formats.protocol import follow
from dledger_node.raft.core import Raft
from dledger_node.services.waiting import CommitWaiters, Waiter

WAITING_MAX: Final = 1024
"""Stale reads that may wait, and all others."""
_ANY_TERM: Final = 0


class WaitingRead(NamedTuple):
    """A read that is not answered yet."""

    answer: Callable[[], None]
    """Answers it with what is committed then."""
    refuse: Callable[[], None]
    """Refuses it without a look at the store."""


class CommitWaits:
    """The reads of all services that wait for an entry."""

    def __init__(self, core: Raft, *, waiting_max: int = WAITING_MAX) -> None:
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._waiters = CommitWaiters[WaitingRead](waiting_max)
        self._stale = CommitWaiters[WaitingRead](waiting_max)
        """Reads that wait on, whoever leads, or nobody."""

    def wait(self, index: int, wait_ms: int, read: WaitingRead, *, stale: bool = False) -> None:
        """Answer a read once an entry is committed, or the time has passed, or it must go.

        A read that is not `stale` also goes once this member's term ends or it has no leader.
        """
        waiters, term = (self._stale, _ANY_TERM) if stale else (self._waiters, self._core.term)
        if waiters.is_full:
            _answer([waiters.take_oldest()])
        deadline_s = self._loop.time() + min(wait_ms, follow.WAIT_MS_MAX) / 1000
        waiters.add(Waiter([read], index, term, deadline_s))

    def on_turn(self, committed_index: int) -> None:
        """Answer the reads whose entry is committed, and those that must go."""
        if self._waiters.count:
            term = self._core.term if self._core.leader_id is not None else None
            for waiters in self._waiters.release(committed_index, term):
                _answer(waiters)
        if self._stale.count:
            _answer(self._stale.release(committed_index, _ANY_TERM)[0])

    @property
    def next_deadline_s(self) -> float:
        """No deadline of a waiting request is earlier than this time."""
        return min(self._waiters.next_deadline_s, self._stale.next_deadline_s)

    def expire(self, now_s: float) -> None:
        """Answer the reads that have waited as long as their clients requested."""
        for waiters in (self._waiters, self._stale):
            _answer(waiters.take_expired(now_s))

    def give_up(self) -> None:
        """Refuse every read that waits, without a look at the store: it may be what has failed."""
        for waiter in (*self._waiters.take_all(), *self._stale.take_all()):
            for read in waiter.replies:
                read.refuse()


def _answer(waiters: Iterable[Waiter[WaitingRead]]) -> None:
    for waiter in waiters:
        for read in waiter.replies:
            read.answer()
