"""The running workers of one kind of object, each a task of its own."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

Key: TypeAlias = tuple[str, str]
"""The namespace and the name of an object."""


class Worker(Protocol):
    """The worker of one object."""

    uid: str

    async def run(self) -> None:
        """Work until cancelled or done."""


W = TypeVar("W", bound=Worker)


@dataclass(frozen=True, slots=True)
class _Running(Generic[W]):
    worker: W
    task: asyncio.Task[None]


class WorkerPool(Generic[W]):
    """The workers of one kind, by namespace and name."""

    def __init__(self) -> None:
        self._running: dict[Key, _Running[W]] = {}
        self._is_closed = False

    def get(self, key: Key) -> W | None:
        """Return the worker of an object; None if there is none."""
        running = self._running.get(key)
        return running.worker if running else None

    def start(self, key: Key, worker: W) -> None:
        """Start a worker in place of the one with the same key; start none if closed."""
        self.stop(key)
        if self._is_closed:
            return
        task = asyncio.create_task(worker.run(), name=f"worker {key[0]}/{key[1]}")
        self._running[key] = _Running(worker, task)

    def stop(self, key: Key, uid: str | None = None) -> bool:
        """Stop a worker; with `uid`, only if it is the worker of that object."""
        running = self._running.get(key)
        if running is None or (uid is not None and running.worker.uid != uid):
            return False
        del self._running[key]
        running.task.cancel()
        return True

    def close(self) -> list[asyncio.Task[None]]:
        """Stop all workers, and start none from now on. Return their tasks, which are ending."""
        self._is_closed = True
        ending = self.tasks()
        for key in [*self._running]:
            self.stop(key)
        return ending

    def workers(self) -> list[W]:
        """Return all workers."""
        return [running.worker for running in self._running.values()]

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks of all workers."""
        return [running.task for running in self._running.values()]

    def __len__(self) -> int:
        return len(self._running)


def identity(body: Mapping[str, Any]) -> tuple[Key, str]:
    """Return the key and the uid of an object."""
    metadata = body["metadata"]
    return (metadata["namespace"], metadata["name"]), metadata["uid"]


def why_ended(task: "asyncio.Task[None]") -> str:
    """Return why a task has ended that should still run; empty if it runs, or is done."""
    if not task.done():
        return ""
    if task.cancelled():
        return f"{task.get_name()}: it was cancelled"
    return f"{task.get_name()}: {task.exception()!r}" if task.exception() is not None else ""
