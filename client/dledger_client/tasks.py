"""Background tasks that end with their owner."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

T = TypeVar("T")


class Spawn(Protocol):
    """Starts a task that somebody else will end."""

    def __call__(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]: ...


class TaskScope:
    """A task group that cancels what still runs when it is left, where TaskGroup would wait.

    As with TaskGroup, a task that fails cancels the code inside the `async with`, and its error is
    raised there, in a group: a defect must not go unheard. Unlike there, an error of that code
    itself stays what it is.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._running: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in list(self._running):
            task.cancel()
        if isinstance(error, asyncio.CancelledError):  # perhaps by the group, which must know
            await self._group.__aexit__(kind, error, traceback)
        else:
            await self._group.__aexit__(None, None, None)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task."""
        task = self._group.create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task
