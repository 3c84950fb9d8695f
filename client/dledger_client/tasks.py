"""Background tasks that end with their owner."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

T = TypeVar("T")


class Spawn(Protocol):
    """Starts a task whose end is the responsibility of another object."""

    def __call__(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]: ...


async def uninterrupted(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, even if the caller is cancelled meanwhile, however often.

    The caller's cancellation takes effect after that. The coroutine must limit its own duration.
    """
    running = asyncio.ensure_future(coroutine)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return running.result()


class TaskScope:
    """A task group that cancels its remaining tasks on exit; TaskGroup would wait for them.

    As with TaskGroup, a failing task cancels the code inside the `async with`, and the block raises
    an exception group with the task's error, so that no defect goes unnoticed. Unlike TaskGroup, an
    error of the code inside the block propagates unchanged.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._running: set[asyncio.Task[Any]] = set()
        self._has_ended = False

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._has_ended = True
        for task in list(self._running):
            task.cancel()
        if isinstance(error, asyncio.CancelledError):  # TaskGroup must see its own cancellation
            await self._group.__aexit__(kind, error, traceback)
        else:
            await self._group.__aexit__(None, None, None)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task. Once the scope ends, a new task is cancelled before it begins."""
        if self._has_ended:
            late = asyncio.get_running_loop().create_task(coroutine)
            late.cancel()
            return late
        task = self._group.create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task
