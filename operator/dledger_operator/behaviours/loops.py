"""How a behaviour runs: turn after turn, at once when woken, later after a failure, never too
often.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from dledger_operator.clients.errors import KubeError

logger = logging.getLogger(__name__)


class Wake:
    """A bell: `wait` returns when it was rung since the last `wait`, or when the time is over."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Ring."""
        self._event.set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the bell; False when the time was over first."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


def backoff_s(failures: int, shortest_s: float, longest_s: float, random: Random) -> float:
    """Double the pause with each failure, and take a random part of its upper half, so that many
    who failed together do not come back together.
    """
    pause_s = min(longest_s, shortest_s * 2.0 ** min(failures - 1, 32))
    return pause_s * random.uniform(0.5, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a behaviour takes its turn, in seconds."""

    interval_s: float
    """At the latest so long after the last turn."""
    gap_s: float
    """At the earliest so long after the last turn, however often it is woken."""
    failure_gap_s_max: float = 30.0


async def repeat(
    turn: Callable[[], Awaitable[None]],
    *,
    what: str,
    wake: Wake,
    pace: Pace,
    random: Random,
    on_failure: Callable[[], None],
    until: Callable[[], bool] = lambda: False,
) -> None:
    """Take turns until cancelled, or until `until` says that there is nothing left to do.

    A turn that fails is logged and taken again after a pause; it never ends the loop, because one
    behaviour's trouble must not stop another's. What is not a KubeError is a mistake of ours and is
    logged with its trace.
    """
    failures = 0
    while not until():
        try:
            await turn()
        except KubeError as error:
            failures += 1
            logger.warning("%s: %s", what, error)
        except Exception:
            failures += 1
            logger.exception("%s failed unexpectedly", what)
        else:
            failures = 0
            await asyncio.sleep(pace.gap_s)
            await wake.wait(pace.interval_s)
            continue
        on_failure()
        shortest_s = max(pace.gap_s, 0.05)
        await asyncio.sleep(backoff_s(failures, shortest_s, pace.failure_gap_s_max, random))
