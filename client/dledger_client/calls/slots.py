"""The slots of a client's single requests, which bound how many are under way at once."""

import asyncio
from typing import Final

from dledger_client.errors import GroupUnreachableError

TIME_LEFT_MIN_S: Final = 0.001
"""The deadline of a request for which no time is left: it ends before it is sent."""


class CallSlots:
    """The slots of one client. A request has a slot from before its call begins until it ends."""

    def __init__(self, count_max: int, group: str) -> None:
        self._count_max = count_max
        self._group = group
        self._free = asyncio.Semaphore(count_max)
        self._now_s = asyncio.get_running_loop().time

    async def take(self, timeout_s: float) -> float:
        """Wait for a slot, and return the time that is left for the request.

        Raises GroupUnreachableError if there is no slot in time.
        """
        if not self._free.locked():
            await self._free.acquire()  # without waiting
            return timeout_s
        until_s = self._now_s() + timeout_s
        try:
            async with asyncio.timeout_at(until_s):
                await self._free.acquire()
        except TimeoutError:
            raise GroupUnreachableError(
                f"{self._count_max} other requests to group {self._group} were under way for "
                f"{timeout_s:g} s"
            ) from None
        return max(until_s - self._now_s(), TIME_LEFT_MIN_S)

    def release(self) -> None:
        """Give a slot back."""
        self._free.release()
