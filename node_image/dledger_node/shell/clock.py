"""When the next tick of the core is due, and how much time has passed since the last one."""

from typing import Final

from dledger_node.config import TICK_MS

TICK_S: Final = TICK_MS / 1000
CATCH_UP_TICKS_MAX: Final = 2
"""Ticks that are caught up after a pause. The others are lost, since the messages that waited
during the pause must be read before a timeout ends.
"""


class TickClock:
    """Plans ticks at a steady rate. It reads no clock itself; times are in seconds."""

    def __init__(self, now_s: float) -> None:
        self.due_s = now_s + TICK_S
        """When the next tick is due."""
        self._counted_s = now_s

    def tick(self, now_s: float) -> int:
        """Plan the tick after this one; return how many ticks of time have passed since the last.

        The number is 1 on average. It is high after a pause, and 0 for a tick that is caught up.
        """
        self.due_s = max(self.due_s + TICK_S, now_s - CATCH_UP_TICKS_MAX * TICK_S)
        elapsed_ticks = int((now_s - self._counted_s) / TICK_S)
        self._counted_s += elapsed_ticks * TICK_S
        return elapsed_ticks
