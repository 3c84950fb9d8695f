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

    def wait(self, index: int, wait_ms: int, read: WaitingRead) -> None:
        """Answer a read once an entry is committed, or the time has passed, or it must go."""
        if self._waiters.is_full:
            _answer([self._waiters.take_oldest()])
        deadline_s = self._loop.time() + min(wait_ms, follow.WAIT_MS_MAX) / 1000
        self._waiters.add(Waiter([read], index, self._core.term, deadline_s))

    def on_turn(self, committed_index: int) -> None:
        """Answer the reads whose entry is committed; all of them once this member does not lead."""
        if self._waiters.count:
            leading_term = self._core.term if self._core.leads else None
            for waiters in self._waiters.release(committed_index, leading_term):
                _answer(waiters)

    def expire(self, now_s: float) -> None:
        """Answer the reads that have waited as long as their clients requested."""
        _answer(self._waiters.take_expired(now_s))

    def give_up(self) -> None:
        """Refuse every read that waits, without a look at the store: it may be what has failed."""
        for waiter in self._waiters.take_all():
            for read in waiter.replies:
                read.refuse()


def _answer(waiters: Iterable[Waiter[WaitingRead]]) -> None:
    for waiter in waiters:
        for read in waiter.replies:
            read.answer()
