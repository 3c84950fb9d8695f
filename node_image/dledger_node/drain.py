"""Wait until no request, or no connection, is left when a member stops."""

import asyncio


class Drain:
    """Lets a stopping member wait until no waiting request, or no connection, is left."""

    def __init__(self) -> None:
        self._ended: asyncio.Future[None] | None = None

    async def wait(self, count: int) -> None:
        """Return at once if `count`, the number that is left now, is 0; else after `notice(0)`.

        Await it in the turn in which `count` was taken: as a task of its own, it would begin one
        turn later, and miss a `notice` in between.
        """
        if count:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended

    def notice(self, count: int) -> None:
        """Let `wait` return if `count`, the number that is still left, is 0."""
        if self._ended is not None and not count and not self._ended.done():
            self._ended.set_result(None)
