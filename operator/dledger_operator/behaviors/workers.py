"""One task per group, audit, switchover and replacement, started and stopped with their objects.

Watch events may be repeated, missed or late. So every method here is idempotent, and an object is
identified by its uid: a late deletion of an old object must not stop the worker of a new object
with the same name.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from dledger_operator import names
from dledger_operator.behaviors.audits.audit import AuditWorker
from dledger_operator.behaviors.audits.records import has_ended
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.group_worker import GroupWorker
from dledger_operator.behaviors.handover.switchover import SwitchoverWorker
from dledger_operator.behaviors.leases.duties import Duty
from dledger_operator.behaviors.one_off.one_offs import OneOffs
from dledger_operator.behaviors.one_off.order import group_of
from dledger_operator.behaviors.replacement.replacement import ReplaceWorker
from dledger_operator.behaviors.worker_pool import Key, WorkerPool, identity, why_ended

logger = logging.getLogger(__name__)


TURN_S_MAX: Final = 1800.0
"""Every request has a timeout of seconds, and a loop may wait for its turn to reconcile behind many
other groups while the API server is slow. A turn that lasts longer than this hangs.
"""


STOPPED_S_MAX: Final = 5.0
"""How long to wait for the workers at the end; then the Lease is given up in any case."""


class WorkerFailedError(Exception):
    """A worker crashed or hangs because of a bug; the process must be restarted."""


class Workers:
    """All workers of this process."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._groups: WorkerPool[GroupWorker] = WorkerPool()
        self._audits = OneOffs(AuditWorker, context, self._watch_namespaces, self._audit_gone)
        self._switchovers = OneOffs(SwitchoverWorker, context, self._watch_namespaces)
        self._replacements = OneOffs(ReplaceWorker, context, self._watch_namespaces)
        self._group_bodies: dict[Key, Mapping[str, Any]] = {}

    def duties_changed(self) -> None:
        """Start and stop what this process does, because it got or lost a Lease."""
        duties, metrics = self._context.duties, self._context.metrics
        metrics.lease_held.set(float(duties.acts))
        metrics.namespaces_of_others.set(len(duties.of_others()))
        for body in [*self._group_bodies.values()]:
            self._run_group(body)
        for one_offs in self._one_offs:
            one_offs.run_all()

    def group_changed(self, body: Mapping[str, Any]) -> None:
        """Start a worker for a group, or pass the new version to its worker."""
        key, uid = identity(body)
        is_new = key not in self._group_bodies
        self._group_bodies[key] = body
        if is_new:  # most events are changes, which are in a known namespace
            self._watch_namespaces()
        worker = self._groups.get(key)
        if worker is not None and worker.uid == uid:
            worker.changed(body)
            return
        self._run_group(body)

    def _run_group(self, body: Mapping[str, Any]) -> None:
        """Make the group's worker do this process's duty, or stop it if there is none."""
        key, uid = identity(body)
        duties, worker = self._context.duties, self._groups.get(key)
        duty, epoch = duties.of(key[0]), duties.epoch(key[0])
        if duty is Duty.NOTHING:
            if worker is not None:
                worker.stand_by()  # what is on its way is no longer exported
                self._groups.stop(key)
            return
        if worker is not None and worker.uid == uid and duty is Duty.FOLLOW:
            worker.stand_by()
            return
        # What a worker remembers counts only if no other process has acted meanwhile.
        if worker is None or worker.uid != uid or worker.loops.epoch != epoch:
            worker = self._start_group(body)
        if duty is Duty.ALL:
            worker.act(epoch)

    def _start_group(self, body: Mapping[str, Any]) -> GroupWorker:
        key, uid = identity(body)
        logger.info("%s/%s: started the group's worker", *key)
        worker = GroupWorker(body, self._context, lambda: self._group_gone(key, uid))
        self._groups.start(key, worker)
        for audit in self._audits.about(key):
            worker.audits.changed(audit)
        for one_offs in self._one_offs:
            one_offs.wake(key)
        return worker

    def _watch_namespaces(self) -> None:
        namespaces = {namespace for namespace, _ in self._group_bodies}
        self._context.duties.watch_namespaces(
            namespaces.union(*(one_offs.namespaces for one_offs in self._one_offs))
        )

    @property
    def _one_offs(
        self,
    ) -> tuple[OneOffs[AuditWorker], OneOffs[SwitchoverWorker], OneOffs[ReplaceWorker]]:
        return (self._audits, self._switchovers, self._replacements)

    def _one_off_tasks(self) -> list[asyncio.Task[None]]:
        return [task for one_offs in self._one_offs for task in one_offs.tasks()]

    def group_deleted(self, body: Mapping[str, Any]) -> None:
        """Stop a group's worker; Kubernetes deletes the group's children."""
        self._group_gone(*identity(body))

    def pod_changed(self, kind: str | None, body: Mapping[str, Any]) -> None:
        """Pass a pod's watch event to the group's worker; `kind` is None for a pod from a LIST."""
        if worker := self._groups.get(_owner(body, names.GROUP_LABEL)):
            worker.pod_changed(kind, body)

    def node_changed(self, kind: str | None, body: Mapping[str, Any]) -> None:
        """Process a Node's watch event, and notify the workers of groups whose pods run there."""
        nodes = self._context.nodes
        differs = nodes.deleted(body) if kind == "DELETED" else nodes.changed(body)
        if differs:
            self.node_differs(body["metadata"]["name"])

    def node_differs(self, name: str) -> None:
        """Notify the workers of groups whose pods run on a Node that the Node has changed."""
        for worker in self._groups.workers():
            worker.node_changed(name)

    def claim_changed(self, body: Mapping[str, Any]) -> None:
        """Notify the group's worker that a volume claim has changed."""
        if worker := self._groups.get(_owner(body, names.GROUP_LABEL)):
            worker.claim_changed()

    def endpoints_changed(self, body: Mapping[str, Any]) -> None:
        """Notify the group's worker that an EndpointSlice has changed."""
        if worker := self._groups.get(_owner(body, names.GROUP_LABEL)):
            worker.endpoints_changed()

    def child_changed(self, kind: str | None, body: Mapping[str, Any]) -> None:
        """Pass a child's watch event to the group's worker."""
        if worker := self._groups.get(_owner(body, names.GROUP_LABEL)):
            worker.child_changed(kind, body)

    def audit_changed(self, body: Mapping[str, Any]) -> None:
        """Start a worker for an audit, or pass the new version to its worker."""
        self._audits.changed(body)
        group = (body["metadata"]["namespace"], group_of(body))
        if worker := self._groups.get(group):
            worker.audits.changed(body)
        if has_ended(body):
            self._audits.wake(group)

    def audit_deleted(self, body: Mapping[str, Any]) -> None:
        """Stop an audit's worker; Kubernetes deletes the audit's Job."""
        self._audits.deleted(body)

    def _audit_gone(self, body: Mapping[str, Any]) -> None:
        """Process that an audit is gone: its group may get the next one, and others may begin."""
        group = (body["metadata"]["namespace"], group_of(body))
        if worker := self._groups.get(group):
            worker.audits.deleted(body)
        self._audits.wake(group)

    def switchover_changed(self, body: Mapping[str, Any]) -> None:
        """Start a worker for a switchover, or pass the new version to its worker."""
        self._switchovers.changed(body)

    def switchover_deleted(self, body: Mapping[str, Any]) -> None:
        """Stop a switchover's worker. A transfer that the leader has begun goes on."""
        self._switchovers.deleted(body)

    def replacement_changed(self, body: Mapping[str, Any]) -> None:
        """Start a worker for a replacement, or pass the new version to its worker."""
        self._replacements.changed(body)

    def replacement_deleted(self, body: Mapping[str, Any]) -> None:
        """Stop a replacement's worker. What was removed stays removed."""
        self._replacements.deleted(body)

    def job_changed(self, body: Mapping[str, Any]) -> None:
        """Notify the audit's worker that its Job has changed."""
        if worker := self._audits.get(_owner(body, names.AUDIT_LABEL)):
            worker.wake()

    def check(self) -> dict[str, int]:
        """Count the workers. Raises WorkerFailedError if one has crashed, or if a turn of one of
        its loops does not end.
        """
        now_s = asyncio.get_running_loop().time()
        for group in self._groups.workers():
            for loop, wake in group.loops.wakes.items():
                if wake.busy_since_s is not None and now_s - wake.busy_since_s > TURN_S_MAX:
                    where = f"{group.namespace}/{group.name}: {loop}"
                    raise WorkerFailedError(f"{where}: its turn lasts longer than {TURN_S_MAX:g} s")
        for task in (*self._groups.tasks(), *self._one_off_tasks()):
            if why := why_ended(task):
                raise WorkerFailedError(why)
        if failed := self._context.duties.failed():
            raise WorkerFailedError(failed)
        return {
            "groups": len(self._groups),
            "audits": len(self._audits),
            "switchovers": len(self._switchovers),
            "replacements": len(self._replacements),
        }

    async def stop(self) -> None:
        """Cancel all workers and wait until they have ended. Later events start none."""
        tasks = self._groups.close()
        for one_offs in self._one_offs:
            tasks += one_offs.close()
        if tasks:
            await asyncio.wait(tasks, timeout=STOPPED_S_MAX)
        for key in self._group_bodies:
            self._context.metrics.remove_group(*key)

    def _group_gone(self, key: Key, uid: str) -> None:
        if key in self._group_bodies and self._group_bodies[key]["metadata"]["uid"] == uid:
            del self._group_bodies[key]
            self._watch_namespaces()
        worker = self._groups.get(key)
        if worker is not None and worker.uid == uid:
            logger.info("%s/%s: the group was deleted; stopped its worker", *key)
            worker.stand_by()
            self._groups.stop(key)


def _owner(body: Mapping[str, Any], label: str) -> Key:
    metadata = body["metadata"]
    return metadata["namespace"], metadata["labels"][label]
