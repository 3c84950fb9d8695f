"""When the next tick of the core is due, and how much time has passed since the last one."""

from typing import Final

from dledger_node.config import TICK_MS

TICK_S: Final = TICK_MS / 1000
CATCH_UP_TICKS_MAX: Final = 2
"""Ticks that are caught up after a pause. The others are lost, since the messages that waited
during the pause must be read before a timeout ends.
"""


class TickClock:
    """Plans ticks at a steady rate. It reads no clock itself; times are in seconds.

    `sleep` plans the next tick later, after a number of ticks that are idle.
    """

    def __init__(self, now_s: float) -> None:
        self.due_s = now_s + TICK_S
        """When the next tick is due."""
        self._counted_s = now_s
        self._idle_ticks = 0

    def tick(self, now_s: float) -> int:
        """Plan the tick after this one; return how many ticks of time have passed since the last.

        The number is 1 on average. It is high after a pause, and 0 for a tick that is caught up.
        """
        self.due_s = max(self.due_s + TICK_S, now_s - CATCH_UP_TICKS_MAX * TICK_S)
        return self._elapsed_ticks(now_s)

    def sleep(self, idle_ticks: int) -> None:
        """Plan the next tick this many ticks later; `wake` must come before any other call."""
        self._idle_ticks = idle_ticks
        self.due_s += idle_ticks * TICK_S

    def wake(self, now_s: float) -> tuple[int, int]:
        """Plan the next tick at the steady rate again.

        Returns how many of the idle ticks are over, and how many ticks of time have passed since
        the last tick.
        """
        left_s = self.due_s - now_s
        left = min(self._idle_ticks, max(0, int(left_s / TICK_S)))
        passed, self._idle_ticks = self._idle_ticks - left, 0
        self.due_s -= left * TICK_S
        return passed, self._elapsed_ticks(now_s)

    def _elapsed_ticks(self, now_s: float) -> int:
        elapsed_ticks = int((now_s - self._counted_s) / TICK_S)
        self._counted_s += elapsed_ticks * TICK_S
        return elapsed_ticks
