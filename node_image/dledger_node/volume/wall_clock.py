"""A wall clock for retention that does not follow implausible steps.

Segments expire by their modification times, so a wall clock that jumps forward by a month would
expire the whole log at once. The time since boot shows how far the wall clock should have moved.
A larger step is refused and reported: from then on the time is that of the clock before the step.
Suspension of the machine is no step, since the time since boot includes it. A step back is
followed: it only makes segments younger. So is the step forward that takes it back.

The clock with which the process starts is believed. A member that was off for a month and a host
that boots a month ahead look the same, and the first must be able to remove its old segments.
"""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

logger = logging.getLogger(__name__)

STEP_S_MAX: Final = 600.0
"""The largest step forward that is followed. Clocks that drift are corrected by less."""


def since_boot_s() -> float:
    """Return the time since boot, including time during which the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class WallClock:
    """The wall clock without the steps that it took since this object was created."""

    def __init__(
        self,
        wall_s: Callable[[], float] = time.time,
        since_boot_s: Callable[[], float] = since_boot_s,
    ) -> None:
        self.refused_s = 0.0
        """By how much the wall clock is ahead of `now_s`; 0 unless a step was refused."""
        self._wall_s = wall_s
        self._since_boot_s = since_boot_s
        self._ahead_s = self._most_ahead_s = wall_s() - since_boot_s()
        """By how much `now_s` is ahead of the time since boot, now and at the most so far."""

    def now_s(self) -> float:
        """Return the time in seconds since the epoch. Call this more often than once an hour."""
        wall_s, boot_s = self._wall_s(), self._since_boot_s()
        ahead_s = wall_s - boot_s
        if ahead_s - self._most_ahead_s > STEP_S_MAX:
            step_s = ahead_s - self._ahead_s
            if not self.refused_s:
                logger.error(
                    "the wall clock is %.0f s ahead of the time that has passed; retention by age "
                    "does not follow it. Check the clock; if it is right, restart this member",
                    step_s,
                )
            self.refused_s = step_s
        else:
            if self.refused_s:
                logger.warning("the wall clock is plausible again; retention follows it")
            self.refused_s = 0.0
            self._ahead_s = ahead_s
            self._most_ahead_s = max(self._most_ahead_s, ahead_s)
        return boot_s + self._ahead_s


class WallClockCollector(Collector):
    """Turns the steps that were refused into a metric family."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        """Yield the family."""
        self._clock.now_s()  # without retention, nothing else looks at the clock
        yield GaugeMetricFamily(
            "dledger_node_wall_clock_refused_seconds",
            "By how much the wall clock is ahead of the time that has passed; 0 if plausible.",
            value=self._clock.refused_s,
        )
