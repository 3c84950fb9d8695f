"""The event loop of one member in virtual time: callbacks run one at a time, and each takes time.

The node's own `ReadTurns`, `InputTurns` and `TickClock` run on it.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from dledger_sim.group.events import Events

Callback: TypeAlias = Callable[[], None]


class EventLoop:
    """Runs callbacks in the order of their arrival; each one delays all that wait behind it."""

    def __init__(self, events: Events, slowness: int) -> None:
        """`slowness` is the factor by which all work takes longer than on a fast machine."""
        self._events = events
        self._slowness = slowness
        self._ready: deque[Callback] = deque()
        self._free_us = 0
        self._worked_us = 0
        self._is_planned = False

    def call_soon(self, callback: Callback) -> None:
        """Run a callback after all that are already waiting."""
        self._ready.append(callback)
        self._plan()

    def work(self, fast_us: float) -> None:
        """Let the current callback take this much time of a fast machine."""
        self._worked_us += int(fast_us * self._slowness)

    def after(self, fast_us: float, callback: Callable[..., None], *arguments: object) -> None:
        """Run a callback that works, once the loop has time for it."""

        def run() -> None:
            self.work(fast_us)
            callback(*arguments)

        self.call_soon(run)

    def now_s(self) -> float:
        """Return the time in seconds, including the work of the current callback so far."""
        return (self._events.now_us + self._worked_us) / 1e6

    @property
    def worked_us(self) -> float:
        """The work of the current callback so far, in time of a fast machine."""
        return self._worked_us / self._slowness

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            delay_us = max(0, self._free_us - self._events.now_us)
            self._events.after(delay_us, self._run)

    def _run(self) -> None:
        callback = self._ready.popleft()
        try:
            callback()
        finally:
            self._free_us, self._worked_us = self._events.now_us + self._worked_us, 0
            self._is_planned = False
        if self._ready:
            self._plan()
