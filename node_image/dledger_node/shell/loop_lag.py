"""How late the event loop is, and how long its turns are.

A turn is one pass of the loop: all callbacks between two waits for input. All parts of a member
run there, so a long turn delays heartbeats, probes and all clients. Two times are
measured:

- the *lag* of a timer is wall time. It includes what the machine does besides this process;
- the *processor time* of a turn is this thread's own, so it shows what the turn itself cost.

The loop has no hook for its turns. The places where input enters call `begin_turn`; a callback that
is scheduled there runs in the next turn and measures this one. It follows the loop from turn to
turn, because a turn's callbacks may continue in the next one, until a turn has nearly no work.
"""

import asyncio
import time
from typing import Final

from dledger_node.histogram import Histogram

BOUNDS_S: Final = (
    0.000_1, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip
QUIET_TURN_S: Final = 0.000_05
"""A turn of less processor time had nearly no work; the next one is not followed."""


class LoopLag:
    """Measures one event loop; every call must come from its thread."""

    def __init__(self) -> None:
        self.lag_s = Histogram(BOUNDS_S)
        """Wall time by which timers fired late."""
        self.turn_cpu_s = Histogram(BOUNDS_S)
        """Processor time of each turn that was measured."""
        self._following = False
        self._has_input = False
        self._begun_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        """Kept from the first turn on: `get_running_loop` makes a system call."""

    def begin_turn(self) -> None:
        """Measure the current turn; call this wherever input enters, before it is handled."""
        self._has_input = True
        if not self._following:
            self._following = True
            self._begun_s = time.thread_time()
            self._follow_next_turn()

    def timer_fired(self, late_s: float) -> None:
        """Note how late a timer fired."""
        self.lag_s.observe(max(0.0, late_s))

    def _end_turn(self) -> None:
        now_s = time.thread_time()
        took_s, self._begun_s = now_s - self._begun_s, now_s
        self._following = self._has_input or took_s > QUIET_TURN_S
        self._has_input = False
        if took_s > QUIET_TURN_S:
            self.turn_cpu_s.observe(took_s)
        if self._following:
            self._follow_next_turn()

    def _follow_next_turn(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._end_turn)
