"""How often a broker polls what waits: every 50 ms, or a few times a second if that can wait.

Each look wakes the process, which costs more than the look itself. So an idle broker looks at the
same times as the other work of an idle member.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from dledger_node import common_times

BUSY_S: Final = 0.05
IDLE_S: Final = 0.25
"""A held pull may end one and a half times this long after its time limit."""


class Pace:
    """Decides when the next look is due."""

    def __init__(self, is_idle: Callable[[], bool], due_in_s: Callable[[], float]) -> None:
        """`is_idle` returns whether everything that waits can do so for IDLE_S.

        `due_in_s` returns the time until the first thing that is due at a known time.
        """
        self._is_idle = is_idle
        self._due_in_s = due_in_s
        self._loop = asyncio.get_running_loop()
        self._must_hurry = False
        self._hurried: asyncio.Future[None] | None = None
        """Done by `hurry`; None unless the pace is slow."""

    async def next_look(self) -> None:
        """Return when the next look is due."""
        if self._is_idle() and not self._must_hurry:
            due_s = max(BUSY_S, self._due_in_s())
            idle_s = common_times.wait_s(self._loop.time(), IDLE_S)
            if not await self._is_hurried_within(min(due_s, idle_s)):
                return
        self._must_hurry = False
        due_s = self._due_in_s()
        await asyncio.sleep(min(BUSY_S, due_s) if due_s > 0 else BUSY_S)

    def hurry(self) -> None:
        """Record that something may have to wait: the next look is at most BUSY_S away."""
        self._must_hurry = True
        if self._hurried is not None and not self._hurried.done():
            self._hurried.set_result(None)

    async def _is_hurried_within(self, timeout_s: float) -> bool:
        self._hurried = self._loop.create_future()
        try:
            done, _ = await asyncio.wait([self._hurried], timeout=timeout_s)
            return bool(done)
        finally:
            self._hurried = None
