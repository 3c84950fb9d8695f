"""When a broker looks after what waits: often while anything does, seldom otherwise.

Each look wakes the process, which costs more than the look itself. So an idle broker looks at times
that it has in common with what else an idle member does.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from dledger_node import common_times

BUSY_S: Final = 0.05
IDLE_S: Final = 0.25
"""The end of a held pull comes up to one and a half times as late."""


class Pace:
    """Tells when the next look is due."""

    def __init__(self, is_idle: Callable[[], bool], due_in_s: Callable[[], float]) -> None:
        """`is_idle` tells whether nothing waits but what can do so for IDLE_S, and `due_in_s` the
        time until the first thing that is due at a known time.
        """
        self._is_idle = is_idle
        self._due_in_s = due_in_s
        self._loop = asyncio.get_running_loop()
        self._idle: asyncio.Future[None] | None = None
        """Done once something has come that may wait; None while the pace is fast."""

    async def next_look(self) -> None:
        """Return when the next look is due."""
        if self._is_idle() and not await self._came_within(self._idle_s()):
            return
        await asyncio.sleep(BUSY_S)

    def hurry(self) -> None:
        """Take note that something has come that may wait: the next look is BUSY_S away at most."""
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _idle_s(self) -> float:
        due_s = max(BUSY_S, self._due_in_s())
        return min(due_s, common_times.wait_s(self._loop.time(), IDLE_S))

    async def _came_within(self, timeout_s: float) -> bool:
        self._idle = self._loop.create_future()
        try:
            done, _ = await asyncio.wait([self._idle], timeout=timeout_s)
            return bool(done)
        finally:
            self._idle = None
