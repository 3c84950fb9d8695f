"""Reads that wait until an entry is committed, for a time that the client chooses.

At most a fixed number of requests wait. A further request releases the oldest, which is answered
without entries; its client then asks again. So no request is refused, and memory stays bounded.

A read whose entry is committed is due. If many are due, they are answered in groups, in the order
in which they became due (`answer_pace`). Each answer is determined only when it is sent.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from dledger_formats.protocol import follow
from dledger_node.raft.core import Raft
from dledger_node.services.answer_pace import AnswerPace
from dledger_node.services.waiting import CommitWaiters, Waiter

WAITING_MAX: Final = 1024
"""Limit on stale reads that wait for an entry, and on all others. Twice as many may be due."""
ENOUGH_ENTRIES: Final = 1000
"""A read that finds this many entries is far behind, and is answered at once."""
TIMER_S_MIN: Final = 0.001
"""The resolution of the loop's clock."""
_ANY_TERM: Final = 0


CallLater: TypeAlias = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


class WaitingRead(NamedTuple):
    """A read that is not answered yet."""

    answer: Callable[[], None]
    """Answers it with what is committed then."""
    refuse: Callable[[], None]
    """Refuses it without reading the store."""


class HeldReads:
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
        """Reads that keep waiting no matter which member leads, or if none does."""
        self._due: deque[WaitingRead] = deque()
        self._due_max = 2 * waiting_max
        self._pace = AnswerPace()
        self._timer: asyncio.TimerHandle | None = None
        """Runs when the pace allows the next answers, while some are due."""

    def admits(self, ready_count: int) -> bool:
        """Return whether a read that could wait is answered at once with `ready_count` entries.

        A read that is far behind uses no budget while other reads wait for the budget. Otherwise
        many such reads could make the others wait forever.
        """
        now_s = self._now_s()
        if self._due or not self._pace.room(1, now_s):
            return ready_count >= ENOUGH_ENTRIES
        self._pace.use(1, now_s)
        return True

    def wait(self, index: int, wait_ms: int, read: WaitingRead, *, stale: bool = False) -> None:
        """Answer a read once an entry is committed, its time has passed, or its place is needed.

        If the entry is committed already, the read waits for its turn (`admits`). A read that is
        not `stale` is also answered once this member's term ends or it has no leader.
        """
        if index <= self._core.readable_index:
            self._add_due(read)
            self._wake_in_time(self._now_s())
            return
        waiters, term = (self._stale, _ANY_TERM) if stale else (self._waiters, self._core.term)
        if waiters.is_full:
            _answer([waiters.take_oldest()])
        deadline_s = self._now_s() + min(wait_ms, follow.WAIT_MS_MAX) / 1000
        waiters.add(Waiter([read], index, term, deadline_s))

    def on_turn(self, committed_index: int) -> None:
        """Answer due reads as the pace allows, and reads that can no longer wait here."""
        if self._waiters.count or self._stale.count or self._due:
            self._release(committed_index)

    def _release(self, committed_index: int) -> None:
        core = self._core
        committed, gone = self._waiters.release(
            committed_index, core.term if core.leader_id is not None else None
        )
        stale, _ = self._stale.release(committed_index, _ANY_TERM)
        _answer(gone)
        for waiter in (*committed, *stale):
            for read in waiter.replies:
                self._add_due(read)
        if self._due:
            self._answer_due()

    def _add_due(self, read: WaitingRead) -> None:
        if len(self._due) >= self._due_max:
            self._due.popleft().answer()
        self._due.append(read)

    def _answer_due(self) -> None:
        """Answer as many reads as the pace allows, and set the timer for the others."""
        now_s = self._now_s()
        self._pace.adapt(self._waiters.count + self._stale.count + len(self._due), now_s)
        count = self._pace.room(len(self._due), now_s)
        if count:
            self._pace.use(count, now_s)
            for _ in range(count):
                self._due.popleft().answer()
        if self._due:
            self._wake_in_time(now_s)

    def _wake_in_time(self, now_s: float) -> None:
        """Set the timer for the next answers."""
        if self._timer is None:
            wait_s = max(TIMER_S_MIN, self._pace.wait_s(len(self._due), now_s))
            self._timer = self._call_later(wait_s, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._begin_turn()
        self._release(self._core.readable_index)

    @property
    def next_deadline_s(self) -> float:
        """No deadline of a waiting read is earlier than this time. A read that is due has none."""
        return min(self._waiters.next_deadline_s, self._stale.next_deadline_s)

    def expire(self, now_s: float) -> None:
        """Answer the reads that have waited as long as their clients requested."""
        for waiters in (self._waiters, self._stale):
            _answer(waiters.take_expired(now_s))

    def give_up(self) -> None:
        """Refuse every waiting read without reading the store, which may have failed."""
        if self._timer is not None:
            self._timer.cancel()
        for waiter in (*self._waiters.take_all(), *self._stale.take_all()):
            for read in waiter.replies:
                read.refuse()
        while self._due:
            self._due.popleft().refuse()


def _answer(waiters: Iterable[Waiter[WaitingRead]]) -> None:
    for waiter in waiters:
        for read in waiter.replies:
            read.answer()
