"""All objects of one kind that are carried out once, and their workers."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.leases.duties import Duty
from dledger_operator.behaviors.one_off.order import group_of, has_begun, place
from dledger_operator.behaviors.one_off.worker import OneOffWorker
from dledger_operator.behaviors.worker_pool import Key, WorkerPool, identity

W = TypeVar("W", bound=OneOffWorker)


class OneOffs(Generic[W]):
    """The objects of one kind. An object has a worker while something is left to do, and while this
    process has to do it.
    """

    def __init__(
        self,
        worker: type[W],
        context: Context,
        on_namespaces: Callable[[], None],
        on_gone: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> None:
        """Create the set; `on_namespaces` is called when `namespaces` may have changed, and
        `on_gone` with every object that no longer exists, even if no watch event reported that.
        """
        self._worker = worker
        self._context = context
        self._on_namespaces = on_namespaces
        self._on_gone = on_gone
        self._running: WorkerPool[W] = WorkerPool()
        self._bodies: dict[Key, Mapping[str, Any]] = {}

    @property
    def namespaces(self) -> set[str]:
        """The namespaces of all objects."""
        return {namespace for namespace, _ in self._bodies}

    def __len__(self) -> int:
        return len(self._running)

    def get(self, key: Key) -> W | None:
        """Return the worker of an object; None if it has none."""
        return self._running.get(key)

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks of all workers."""
        return self._running.tasks()

    def close(self) -> list[asyncio.Task[None]]:
        """Stop all workers, and start none from now on. Return their tasks, which are ending."""
        return self._running.close()

    def about(self, group: Key) -> list[Mapping[str, Any]]:
        """Return all objects about a group, by namespace and name."""
        namespace, name = group
        return [
            body
            for (within, _), body in self._bodies.items()
            if within == namespace and group_of(body) == name
        ]

    def changed(self, body: Mapping[str, Any]) -> None:
        """Start a worker for an object, or pass the new version to its worker.

        An object for which nothing is left to do gets no worker.
        """
        key, uid = identity(body)
        before = self._bodies.get(key)
        self._bodies[key] = body
        if before is None:
            self._on_namespaces()
        elif before["metadata"]["uid"] != uid:
            self._on_gone(before)
        elif before.get("status") != body.get("status") and (has_begun(body) or self._ended(body)):
            self._wake_next(body)
        worker = self._running.get(key)
        if worker is not None and worker.uid == uid:
            worker.changed(body)
            return
        self._run(body)

    def deleted(self, body: Mapping[str, Any]) -> None:
        """Stop the worker of a deleted object."""
        self._gone(body)

    def run_all(self) -> None:
        """Start and stop workers, because this process got or lost a Lease."""
        for body in [*self._bodies.values()]:
            self._run(body)

    def wake(self, group: Key) -> None:
        """Wake the workers of all objects about a group."""
        for worker in self._running.workers():
            if (worker.namespace, worker.group_name) == group:
                worker.wake()

    def _run(self, body: Mapping[str, Any]) -> None:
        key, uid = identity(body)
        if self._context.duties.of(key[0]) is not Duty.ALL:
            self._running.stop(key)
            return
        worker = self._running.get(key)
        if worker is not None and worker.uid == uid:
            return
        fresh = self._worker(body, self._context, lambda: self._gone(body))
        if not fresh.done():
            self._running.start(key, fresh)

    def _gone(self, body: Mapping[str, Any]) -> None:
        key, uid = identity(body)
        if key in self._bodies and self._bodies[key]["metadata"]["uid"] == uid:
            del self._bodies[key]
            self._on_namespaces()
        self._running.stop(key, uid)
        self._wake_next(body)
        self._on_gone(body)

    def _wake_next(self, changed: Mapping[str, Any]) -> None:
        """Wake the first object about the same group that has not begun: its turn may have come."""
        about = self.about((changed["metadata"]["namespace"], group_of(changed)))
        waiting = [each for each in about if not (has_begun(each) or self._ended(each))]
        if waiting and (worker := self._running.get(identity(min(waiting, key=place))[0])):
            worker.wake()

    def _ended(self, body: Mapping[str, Any]) -> bool:
        return (body.get("status") or {}).get("phase") in self._worker.ended_phases
