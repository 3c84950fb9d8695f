"""The control loop of a behavior: runs at intervals and when woken; backs off after errors."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from dledger_operator.clients.errors import KubeError, asked_pause_s

logger = logging.getLogger(__name__)


class Wake:
    """A wake-up signal. Signals between two calls of `wait` are merged into one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.busy_since_s: float | None = None
        """When the loop that waits for this signal began its current turn, on the event loop's
        clock; None between two turns.
        """

    def set(self) -> None:
        """Wake the waiting task, or the next call of `wait`."""
        self._event.set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a signal. Return False on a timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


def backoff_s(failures: int, shortest_s: float, longest_s: float, random: Random) -> float:
    """Return an exponential backoff with jitter, so that retries do not synchronize.

    The pause doubles with each failure up to `longest_s`; the result is 50 to 100 % of it.
    """
    pause_s = min(longest_s, shortest_s * 2.0 ** min(failures - 1, 32))
    return pause_s * random.uniform(0.5, 1.0)


LASTING_PART: Final = 1 / 8
LASTING_S_MIN: Final = 1.0
LASTING_S_MAX: Final = 15.0


class Lasting:
    """How soon to look again at a state whose end may cause no event.

    The pause is a fraction of the time for which nothing has changed. So an end is noticed late by
    that fraction at most, and a state that lasts until somebody acts, perhaps for days, costs
    little.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Create; nothing has been seen yet. `clock` returns monotonic seconds."""
        self._clock = clock
        self._seen: object = None
        self._since_s: float | None = None

    def pause_s(self, seen: object) -> float:
        """Return the pause after a look that found `seen`."""
        now_s = self._clock()
        if self._since_s is None or seen != self._seen:
            self._seen, self._since_s = seen, now_s
        return min(LASTING_S_MAX, max(LASTING_S_MIN, LASTING_PART * (now_s - self._since_s)))

    def forget(self) -> None:
        """Restart the time with the next look."""
        self._seen, self._since_s = None, None


TICK_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a behavior runs, in seconds."""

    interval_s: float
    """Maximum time between two runs."""
    gap_s: float
    """Minimum time between two runs, however often the behavior is woken."""
    failure_gap_s_max: float = 30.0
    """Maximum backoff after failures."""
    on_tick: bool = False
    """Whether the interval, of at least `TICK_S`, ends on a multiple of it, or a phase later. A
    wake-up of the process costs more than what most loops do in it, so the loops of groups share
    one. Loops that send requests to the API server do not: they would all send at once.
    """


# Watch events, long polls and other loops wake these. The intervals are for what none of them
# reports, such as an event that a watch has missed; a loop that finds something unsettled looks
# sooner.
GROUP_PACES: Final = {
    "reconcile": Pace(interval_s=300.0, gap_s=0.25),
    "follow": Pace(interval_s=60.0, gap_s=0.02, failure_gap_s_max=1.0),
    "endpoints": Pace(interval_s=300.0, gap_s=0.02, failure_gap_s_max=5.0),
    "observe": Pace(interval_s=5.0, gap_s=0.5, failure_gap_s_max=5.0, on_tick=True),
    "roll": Pace(interval_s=300.0, gap_s=0.25, failure_gap_s_max=10.0),
    "place": Pace(interval_s=60.0, gap_s=0.05, failure_gap_s_max=10.0),
    "scale": Pace(interval_s=300.0, gap_s=0.1, failure_gap_s_max=10.0),
    "tokens": Pace(interval_s=300.0, gap_s=1.0),
    "canary": Pace(interval_s=3600.0, gap_s=0.1, failure_gap_s_max=10.0),
    "audit": Pace(interval_s=15.0, gap_s=1.0, on_tick=True),
    "report": Pace(interval_s=10.0, gap_s=0.25, failure_gap_s_max=10.0, on_tick=True),
}
# How soon the operator looks again for what no watch event reports, such as why a pod was not
# created.
WAITING_INTERVAL_S: Final = 2.0


def wait_s(pace: Pace, now_s: float, phase_s: float = 0.0) -> float:
    """Return how long to wait for the end of the interval that begins now. Intervals on ticks end
    `phase_s` after one.
    """
    if not pace.on_tick:
        return pace.interval_s
    return pace.interval_s - (now_s + pace.interval_s - phase_s) % TICK_S


async def repeat(
    run: Callable[[], Awaitable[float | None]],
    *,
    what: str,
    wake: Wake,
    pace: Pace,
    random: Random,
    on_failure: Callable[[Exception], None],
    until: Callable[[], bool] = lambda: False,
    phase_s: float = 0.0,
) -> None:
    """Call `run` repeatedly until the task is cancelled or `until` returns True.

    `run` may return the seconds until the next run; None means the pace's interval. Runs on
    ticks are `phase_s` after them.

    A failed run is logged and retried after a backoff. It never ends the loop, because a failing
    behavior must not stop the others. Any exception except KubeError is a bug and is logged with
    its traceback.
    """
    failures = 0
    while not until():
        longer_s = 0.0
        failure: Exception
        wake.busy_since_s = asyncio.get_running_loop().time()
        try:
            sooner_s = await run()
        except KubeError as error:
            failures, failure = failures + 1, error
            logger.warning("%s: %s", what, error)
            longer_s = asked_pause_s(error)
        except Exception as error:
            failures, failure = failures + 1, error
            logger.exception("%s failed unexpectedly", what)
        else:
            failures, wake.busy_since_s = 0, None
            await asyncio.sleep(pace.gap_s)
            now_s = asyncio.get_running_loop().time()
            await wake.wait(wait_s(pace, now_s, phase_s) if sooner_s is None else sooner_s)
            continue
        wake.busy_since_s = None
        on_failure(failure)
        shortest_s = max(pace.gap_s, 0.05)
        pause_s = backoff_s(failures, shortest_s, pace.failure_gap_s_max, random)
        await asyncio.sleep(max(pause_s, longer_s))
