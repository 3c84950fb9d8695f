"""Align periodic work: all tasks with one interval run at the same moments.

So an idle member wakes once a second for all tasks that are due once a second.
"""

import asyncio


async def next_common_time(interval_s: float) -> None:
    """Sleep until the event loop's time is a multiple of the interval again."""
    await asyncio.sleep(wait_s(asyncio.get_running_loop().time(), interval_s))


def wait_s(now_s: float, interval_s: float) -> float:
    """Return the time to the next multiple of the interval that is at least half an interval away.

    A timer may fire a little early; then the very next multiple is the one that was just awaited.
    """
    left_s = interval_s - now_s % interval_s
    return left_s if left_s >= interval_s / 2 else left_s + interval_s
