"""The ticks of a member: steady while there is work, and few while the group is idle.

A member that has nothing to do sleeps until the core's clock can change anything. Whatever wakes
it, the ticks of its sleep are passed to the core first, so that the core's time is right for every
input. If the input has left nothing to do, such as a heartbeat, it sleeps again in the same turn of
the loop.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Final, Protocol

from dledger_node.shell.clock import CATCH_UP_TICKS_MAX, TICK_S, TickClock

SLEEP_TICKS_MAX: Final = 100
"""The most ticks that a member sleeps between two ticks, even if inputs such as heartbeats end the
sleep and it sleeps again. Changes for which there is no event are seen after this time.
"""
WAKING_TICKS: Final = CATCH_UP_TICKS_MAX + 3
"""A sleep ends this many ticks before a timeout does: if the process was stopped meanwhile, it must
first read the messages that wait for it.
"""


class ClockedCore(Protocol):
    """The core, as far as its clock is concerned."""

    def idle_ticks(self, *, before_timeout: int = 0) -> int:
        """Return how many of the next ticks change nothing but the clock."""

    def pass_idle_ticks(self, count: int, elapsed_ticks: int) -> None:
        """Advance the clock by idle ticks."""


class Ticker:
    """Calls `tick` with the ticks of time since the last one, for as long as `run` runs."""

    def __init__(
        self,
        core: ClockedCore,
        *,
        tick: Callable[[int], None],
        at_rest_until_s: Callable[[], float],
        late: Callable[[float], None],
    ) -> None:
        """`at_rest_until_s` returns the loop's time up to which nothing but the core needs a tick;
        a time in the past while something does. `late` receives a timer's delay in seconds.
        """
        self._core = core
        self._tick = tick
        self._at_rest_until_s = at_rest_until_s
        self._late = late
        self._loop = asyncio.get_running_loop()
        self._asleep = False
        self._slept_ticks = 0
        """The ticks slept through since the last tick."""
        self._sleeps_again = False
        """Whether the input that ended a sleep was the core's alone."""
        self._clock = TickClock(self._loop.time())
        self._due: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Tick until cancelled. Skip ticks after a pause, to read the waiting messages first."""
        self._clock = TickClock(self._loop.time())
        try:
            while True:
                self._due = self._loop.create_future()
                self._set_timer()
                await self._due
                self._late(self._loop.time() - self._clock.due_s)
                if self._asleep:
                    self._end_sleep()
                self._slept_ticks = 0
                self._tick(self._clock.tick(self._loop.time()))
                self._sleep_if_idle()
        finally:
            self._due = None
            self._stop_timer()

    def wake(self) -> None:
        """Tick at the steady rate again; call this before a client's input.

        The input may lead to more work in later turns of the loop, so the next tick checks
        whether there is any.
        """
        self._sleeps_again = False
        if self._asleep:
            self._end_sleep()
            self._set_timer_if_waiting()

    def catch_up(self) -> None:
        """Pass the ticks of the sleep; call this before the core gets any input.

        If nothing else woke this member, it sleeps again after the current turn of the loop, unless
        the input has left work.
        """
        if self._asleep:
            self._end_sleep()
            self._sleeps_again = True
            self._loop.call_soon(self._settle)

    def _end_sleep(self) -> None:
        """Pass the ticks of a sleep that ends to the core."""
        self._asleep = False
        passed, elapsed_ticks = self._clock.wake(self._loop.time())
        self._slept_ticks += passed
        self._core.pass_idle_ticks(passed, elapsed_ticks)

    def _settle(self) -> None:
        """Plan the next tick after an input of the core that ended a sleep."""
        if self._asleep:
            return  # a tick came in between
        if self._sleeps_again and self._clock.due_s > self._loop.time():
            self._sleep_if_idle()
        self._set_timer_if_waiting()

    def _sleep_if_idle(self) -> None:
        """Sleep through the core's idle ticks, unless something else needs a tick before."""
        rest_s = self._at_rest_until_s() - self._clock.due_s
        if rest_s <= 0:
            return
        rest_ticks = SLEEP_TICKS_MAX if rest_s == math.inf else int(rest_s / TICK_S)
        idle_ticks = self._core.idle_ticks(before_timeout=WAKING_TICKS)
        count = min(SLEEP_TICKS_MAX - self._slept_ticks, rest_ticks, idle_ticks)
        if count > 0:
            self._asleep = True
            self._clock.sleep(count)

    def _set_timer_if_waiting(self) -> None:
        """Set the timer, unless the tick that is due is about to run."""
        if self._due is not None and not self._due.done():
            self._set_timer()

    def _set_timer(self) -> None:
        self._stop_timer()
        self._timer = self._loop.call_at(self._clock.due_s, self._fire)

    def _fire(self) -> None:
        if self._due is not None and not self._due.done():
            self._due.set_result(None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
