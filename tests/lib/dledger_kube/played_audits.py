"""Plays what Kubernetes does with the Jobs of audits: pods run, are lost, and leave results."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dledger_formats.audit import AuditSummary, Verdict
from dledger_kube.cluster import API, MERGE_PATCH, Namespace, Object
from dledger_operator import names

BATCH = "/apis/batch/v1"
Until = Callable[[str, Callable[[], bool]], Awaitable[None]]
"""Waits until a condition holds; the first argument describes it."""


def owner_of(api_version: str, kind: str, owner: Object) -> Object:
    """Return the reference by which an object controls what it has created."""
    return {
        "apiVersion": api_version, "kind": kind, "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": True,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlayedAudits:
    """The audits of a namespace."""

    namespace: Namespace

    async def ask(self, name: str, group: str = "flights", **spec: Any) -> None:
        """Create a DLedgerAudit, as a user does."""
        sent = {
            "apiVersion": "dledger.io/v1alpha1",
            "kind": "DLedgerAudit",
            "metadata": {"name": name},
            "spec": {"groupRef": {"name": group}, **spec},
        }
        await self._request("POST", self.namespace.path("dledgeraudits", group=API), sent)

    def all(self) -> dict[str, Object]:
        """Return all DLedgerAudits by name."""
        found = self.namespace.get("dledgeraudits", group=API)["items"]
        return {each["metadata"]["name"]: each for each in found}

    def reason(self, name: str) -> str:
        """Return the reason of an audit's condition; empty before there is one."""
        conditions = self.all().get(name, {}).get("status", {}).get("conditions", [])
        return conditions[0]["reason"] if conditions else ""

    def jobs(self) -> set[str]:
        """Return the names of all Jobs."""
        return {
            each["metadata"]["name"] for each in self.namespace.get("jobs", group=BATCH)["items"]
        }

    async def run(self, name: str, verdict: Verdict, until: Until) -> None:
        """Let an audit have its Job, run, and end with a verdict."""
        await until("its Job exists", lambda: names.audit_job(name) in self.jobs())
        await self.begin(name, names.timestamp(datetime.now(UTC)))
        await self.end(name, verdict, names.timestamp(datetime.now(UTC)))
        await until("the audit has ended", lambda: self.reason(name) == verdict)

    async def begin(self, name: str, started_at: str, pod: str = "first") -> None:
        """Start the pod of an audit's Job."""
        job = names.audit_job(name)
        found = self.namespace.get("jobs", job, BATCH)
        owner = owner_of("batch/v1", "Job", found)
        await self.create_pod(f"{job}-{pod}", found["spec"]["template"], owner)
        await self._status("jobs", job, {"startTime": started_at, "active": 1}, BATCH)
        await self._container(f"{job}-{pod}", {"running": {"startedAt": started_at}})

    async def create_pod(self, name: str, template: Object, *owners: Object) -> None:
        """Create a pod from the template of a Job."""
        labels = template["metadata"]["labels"]
        made = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels, "ownerReferences": list(owners)},
            "spec": template["spec"],
        }
        await self._request("POST", self.namespace.path("pods"), made)

    async def begin_executor(self, name: str, executor: str, driver: str = "first") -> None:
        """Let the driver of an audit create the pod of an executor, which finds no node."""
        job = names.audit_job(name)
        template = self.namespace.get("jobs", job, BATCH)["spec"]["template"]
        (container,) = template["spec"]["containers"]
        variables = {each["name"]: each.get("value", "") for each in container["env"]}
        pod = json.loads(variables["DLEDGER_AUDIT_EXECUTOR_POD"])
        owner = owner_of("v1", "Pod", self.namespace.get("pods", f"{job}-{driver}"))
        await self.create_pod(executor, pod, owner)

    async def lose(self, name: str, pod: str = "first") -> None:
        """Evict the pod of an audit's Job."""
        ended = {"terminated": {"exitCode": 137, "reason": "Evicted"}}
        await self._container(f"{names.audit_job(name)}-{pod}", ended, "Failed")

    async def end(
        self,
        name: str,
        verdict: Verdict,
        ended_at: str,
        pod: str = "first",
        *,
        killed: bool = False,
    ) -> None:
        """Let the pod of an audit's Job, or another pod with its label, leave a result; `killed`
        says that it was killed afterwards, for want of memory.
        """
        summary = AuditSummary(
            verdict=verdict, message=f"told by {name}", members=["n0"], entries=1, record_bytes=1,
            agreed_index=0, findings=0, first_findings=[],
        )  # fmt: skip
        message = summary.to_json().decode()
        how = {"exitCode": 137, "reason": "OOMKilled"} if killed else {"exitCode": 0}
        ended = {"terminated": {**how, "message": message, "finishedAt": ended_at}}
        phase = "Failed" if killed else "Succeeded"
        await self._container(f"{names.audit_job(name)}-{pod}", ended, phase)

    async def _container(self, pod: str, state: Object, phase: str = "Running") -> None:
        status = {
            "name": names.AUDIT_CONTAINER, "state": state, "ready": False, "restartCount": 0,
            "image": "audit:1", "imageID": "audit:1",
        }  # fmt: skip
        await self._status("pods", pod, {"phase": phase, "containerStatuses": [status]}, "/api/v1")
        # A real Job controller changes the Job with its pods, which is what the operator watches.
        job = pod.rpartition("-")[0]
        note = {"metadata": {"annotations": {"played": f"{pod} {phase}"}}}
        await self._request("PATCH", self.namespace.path("jobs", job, BATCH), note)

    async def _status(self, kind: str, name: str, status: Object, group: str) -> None:
        path = self.namespace.path(kind, name, group)
        await self._request("PATCH", f"{path}/status", {"status": status})

    async def _request(self, verb: str, path: str, body: Object) -> Any:
        kind = {"content_type": MERGE_PATCH} if verb == "PATCH" else {}
        return await asyncio.to_thread(self.namespace.server.request, verb, path, body, **kind)
