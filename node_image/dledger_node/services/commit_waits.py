"""Reads that wait until an entry is committed, for a time that the client chooses.

At most a fixed number of requests wait. A further request releases the oldest, which is answered
without entries; its client then asks again. So no request is refused, and memory stays bounded.

Where many wait, they are answered less often, with more entries each (`answer_pace`).
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from dledger_formats.protocol import follow
from dledger_node.raft.core import Raft
from dledger_node.services.answer_pace import AnswerPace
from dledger_node.services.waiting import CommitWaiters, Waiter

WAITING_MAX: Final = 1024
"""Stale reads that may wait, and all others."""
ENOUGH_ENTRIES: Final = 1000
"""A read that finds this many entries is far behind, and is answered at once."""
TIMER_S_MIN: Final = 0.001
"""The resolution of the loop's clock."""
_ANY_TERM: Final = 0
_NONE_COMMITTED: Final = -1


CallLater: TypeAlias = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


class WaitingRead(NamedTuple):
    """A read that is not answered yet."""

    answer: Callable[[], None]
    """Answers it with what is committed then."""
    refuse: Callable[[], None]
    """Refuses it without a look at the store."""


class CommitWaits:
    """The reads of all services that wait for an entry."""

    def __init__(
        self,
        core: Raft,
        *,
        waiting_max: int = WAITING_MAX,
        begin_turn: Callable[[], None] = lambda: None,
        now_s: Callable[[], float] | None = None,
        call_later: CallLater | None = None,
    ) -> None:
        """`begin_turn` is called before a timer's work. The time and the timers are the loop's."""
        loop = asyncio.get_running_loop()
        self._core = core
        self._begin_turn = begin_turn
        self._now_s = now_s or loop.time
        self._call_later: CallLater = call_later or loop.call_later
        self._waiters = CommitWaiters[WaitingRead](waiting_max)
        self._stale = CommitWaiters[WaitingRead](waiting_max)
        """Reads that wait on, whoever leads, or nobody."""
        self._pace = AnswerPace()
        self._timer: asyncio.TimerHandle | None = None
        """Runs when the pace allows the next answers, while some are due."""

    def admits(self, ready_count: int) -> bool:
        """Tell whether a read that may wait, but finds so many entries, is answered at once.

        A read that is far behind uses no budget while others wait for it. Otherwise many such reads
        could let them wait without end.
        """
        now_s = self._now_s()
        if self._timer is not None or now_s < self._pace.opens_at_s:
            return ready_count >= ENOUGH_ENTRIES
        self._pace.use(1, now_s)
        return True

    def wait(self, index: int, wait_ms: int, read: WaitingRead, *, stale: bool = False) -> None:
        """Answer a read once an entry is committed, or the time has passed, or it must go.

        If the entry is committed already, the read waits for its turn (`admits`). A read that is
        not `stale` also goes once this member's term ends or it has no leader.
        """
        waiters, term = (self._stale, _ANY_TERM) if stale else (self._waiters, self._core.term)
        if waiters.is_full:
            _answer([waiters.take_oldest()])
        deadline_s = self._now_s() + min(wait_ms, follow.WAIT_MS_MAX) / 1000
        waiters.add(Waiter([read], index, term, deadline_s))
        if index <= self._core.readable_index:
            self._wake_in_time(self._now_s())

    def on_turn(self, committed_index: int) -> None:
        """Answer the reads whose entry is committed if it is time, and those that must go."""
        if self._waiters.count or self._stale.count:
            self._release(committed_index)

    def _release(self, committed_index: int) -> None:
        now_s, core = self._now_s(), self._core
        is_time = now_s >= self._pace.opens_at_s
        index = committed_index if is_time else _NONE_COMMITTED
        committed, gone = self._waiters.release(
            index, core.term if core.leader_id is not None else None
        )
        stale, _ = self._stale.release(index, _ANY_TERM)
        if is_time:
            self._pace.use(len(committed) + len(stale), now_s)
        elif min(self._waiters.next_index, self._stale.next_index) <= committed_index:
            self._wake_in_time(now_s)
        for waiters in (gone, committed, stale):
            _answer(waiters)

    def _wake_in_time(self, now_s: float) -> None:
        """Set the timer for the next answers."""
        if self._timer is None:
            wait_s = max(TIMER_S_MIN, self._pace.opens_at_s - now_s)
            self._timer = self._call_later(wait_s, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._begin_turn()
        self._release(self._core.readable_index)

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
        if self._timer is not None:
            self._timer.cancel()
        for waiter in (*self._waiters.take_all(), *self._stale.take_all()):
            for read in waiter.replies:
                read.refuse()


def _answer(waiters: Iterable[Waiter[WaitingRead]]) -> None:
    for waiter in waiters:
        for read in waiter.replies:
            read.answer()
