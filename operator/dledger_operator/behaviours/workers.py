"""One task for each group and each audit, started and stopped as their objects come and go.

Watch events may be repeated, missed or late, so everything here may be told twice, and an object is
known by its uid: a late farewell to an old object must not stop the work for a new one of the same
name.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from dledger_operator import names
from dledger_operator.behaviours.audit import AuditWorker
from dledger_operator.behaviours.context import Tools
from dledger_operator.behaviours.group_worker import GroupWorker

logger = logging.getLogger(__name__)


class Worker(Protocol):
    """What works for one object."""

    uid: str

    async def run(self) -> None:
        """Work until cancelled, or until there is nothing left to do."""


W = TypeVar("W", bound=Worker)
Key = tuple[str, str]


class WorkerFailedError(Exception):
    """A worker ended by a mistake of ours: this process should be restarted."""


@dataclass(frozen=True, slots=True)
class _Running(Generic[W]):
    worker: W
    task: asyncio.Task[None]


class _Crew(Generic[W]):
    """The workers of one kind, by namespace and name."""

    def __init__(self) -> None:
        self._running: dict[Key, _Running[W]] = {}

    def get(self, key: Key) -> W | None:
        running = self._running.get(key)
        return running.worker if running else None

    def start(self, key: Key, worker: W) -> None:
        self.stop(key)
        task = asyncio.create_task(worker.run(), name=f"worker {key[0]}/{key[1]}")
        self._running[key] = _Running(worker, task)

    def stop(self, key: Key, uid: str | None = None) -> bool:
        """Stop a worker; with `uid`, only the one for that very object."""
        running = self._running.get(key)
        if running is None or (uid is not None and running.worker.uid != uid):
            return False
        del self._running[key]
        running.task.cancel()
        return True

    def workers(self) -> list[W]:
        return [running.worker for running in self._running.values()]

    def tasks(self) -> list[asyncio.Task[None]]:
        return [running.task for running in self._running.values()]

    def __len__(self) -> int:
        return len(self._running)


class Workers:
    """All workers of this process."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._groups: _Crew[GroupWorker] = _Crew()
        self._audits: _Crew[AuditWorker] = _Crew()

    def group_changed(self, body: Mapping[str, Any]) -> None:
        """Start to work for a group, or tell its worker."""
        key, uid = _identity(body)
        worker = self._groups.get(key)
        if worker is not None and worker.uid == uid:
            worker.changed(body)
            return
        logger.info("%s/%s: working for this group", *key)
        self._groups.start(key, GroupWorker(body, self._tools, lambda: self._group_gone(key, uid)))
        for audit in self._audits.workers():
            audit.look_again()  # it may be the group that one waits for

    def group_deleted(self, body: Mapping[str, Any]) -> None:
        """Stop to work for a group; Kubernetes deletes its children."""
        self._group_gone(*_identity(body))

    def pod_changed(self, kind: str | None, body: Mapping[str, Any]) -> None:
        """Tell the group's worker of a pod's watch event; `kind` is None for one from a list."""
        if worker := self._groups.get(_owner(body, names.GROUP_LABEL)):
            worker.pod_changed(kind, body)

    def endpoints_changed(self, body: Mapping[str, Any]) -> None:
        """Tell the group's worker that an EndpointSlice changed."""
        if worker := self._groups.get(_owner(body, names.GROUP_LABEL)):
            worker.endpoints_changed()

    def child_changed(self, kind: str | None, body: Mapping[str, Any]) -> None:
        """Tell the group's worker of a child's watch event."""
        if worker := self._groups.get(_owner(body, names.GROUP_LABEL)):
            worker.child_changed(kind, body)

    def audit_changed(self, body: Mapping[str, Any]) -> None:
        """Start to work for an audit, or tell its worker; one that has ended needs none."""
        key, uid = _identity(body)
        worker = self._audits.get(key)
        if worker is not None and worker.uid == uid:
            worker.changed(body)
            return
        fresh = AuditWorker(body, self._tools, lambda: self._audit_gone(key, uid))
        if not fresh.ended():
            self._audits.start(key, fresh)

    def audit_deleted(self, body: Mapping[str, Any]) -> None:
        """Stop to work for an audit; Kubernetes deletes its Job."""
        self._audit_gone(*_identity(body))

    def job_changed(self, body: Mapping[str, Any]) -> None:
        """Tell the audit's worker that its Job changed."""
        if worker := self._audits.get(_owner(body, names.AUDIT_LABEL)):
            worker.look_again()

    def check(self) -> dict[str, int]:
        """Count the workers; WorkerFailedError when one has ended by a mistake."""
        for task in (*self._groups.tasks(), *self._audits.tasks()):
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise WorkerFailedError(f"{task.get_name()}: {task.exception()!r}")
        return {"groups": len(self._groups), "audits": len(self._audits)}

    async def stop(self) -> None:
        """Stop all workers and wait until they have ended."""
        tasks = [*self._groups.tasks(), *self._audits.tasks()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _group_gone(self, key: Key, uid: str) -> None:
        if self._groups.stop(key, uid):
            logger.info("%s/%s: the group is gone", *key)
            self._tools.metrics.forget(*key)

    def _audit_gone(self, key: Key, uid: str) -> None:
        self._audits.stop(key, uid)


def _identity(body: Mapping[str, Any]) -> tuple[Key, str]:
    metadata = body["metadata"]
    return (metadata["namespace"], metadata["name"]), metadata["uid"]


def _owner(body: Mapping[str, Any], label: str) -> Key:
    metadata = body["metadata"]
    return metadata["namespace"], metadata["labels"][label]
