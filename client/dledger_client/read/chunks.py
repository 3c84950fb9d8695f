"""Items of an async generator for a caller in another thread."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final, Generic, TypeVar

T = TypeVar("T")

CHUNK_MAX: Final = 256
"""Maximum number of items that move from the loop's thread to the caller's at once."""
_END: Final = object()


class Chunks(Generic[T]):
    """Fetches the available items of an async generator in chunks.

    A thread switch for each item would be slow.
    """

    def __init__(self, items: AsyncGenerator[T, None], count_max: int) -> None:
        self._items = items
        self._count_max = count_max
        # Fetches the next item; may outlive a call of `next`.
        self._next: asyncio.Task[T | object] | None = None

    async def next(self) -> list[T]:
        """Return the available items, at least one; an empty list marks the end.

        Raises an error of the generator after the items before it were returned.
        """
        chunk: list[T] = []
        while len(chunk) < self._count_max:
            if self._next is None:
                self._next = asyncio.create_task(self._take())
            await asyncio.wait({self._next}, timeout=0 if chunk else None)
            if not self._next.done() or (chunk and self._next.exception() is not None):
                break
            item = self._next.result()
            if item is _END:
                break
            self._next = None
            chunk.append(item)  # type: ignore[arg-type]  # the only other object is _END
        return chunk

    async def close(self) -> None:
        """Close the generator."""
        if self._next is not None:
            self._next.cancel()
            # Retrieve the task's error, if any, so that asyncio does not log it.
            await asyncio.gather(self._next, return_exceptions=True)
        await self._items.aclose()

    async def _take(self) -> T | object:
        return await anext(self._items, _END)
