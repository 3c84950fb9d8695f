"""An audit ends although the executors of its driver cannot be deleted."""

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from dledger_formats.audit import AuditSummary, Verdict
from dledger_formats.http.status import NodeStatus
from dledger_kube.objects import IMAGES, NOW, audit_body
from dledger_kube.one_off_world import Object, OneOffWorld
from dledger_operator.api_objects import JobPodView, JobView
from dledger_operator.behaviors.audits.audit import AuditWorker
from dledger_operator.behaviors.context import Context
from dledger_operator.clients.errors import InvalidError, KubeError, RefusedError

FORBIDDEN = RefusedError('delete pod air/monthly-exec-1: pods "monthly-exec-1" is forbidden')
WEBHOOK = InvalidError("delete pod air/monthly-exec-1: admission webhook denied the request")
SUMMARY = AuditSummary(
    verdict=Verdict.SOUND, message="all is well", members=["n0"], entries=1, record_bytes=1,
    agreed_index=0, findings=0, first_findings=[],
)  # fmt: skip
DRIVER = JobPodView(
    name="monthly-audit-x", uid="driver-uid", controller_uid="job-uid", running=True,
    exit_code=None, termination_message="", finished_at=None, problem=None,
)  # fmt: skip
EXECUTORS = [
    dataclasses.replace(DRIVER, name=f"monthly-exec-{each}", uid=f"exec-{each}",
                        controller_uid=DRIVER.uid, running=False)
    for each in (1, 2)
]  # fmt: skip


@dataclass(slots=True)
class World(OneOffWorld):
    """A cluster with one audit, whose executors may not be deleted."""

    refusal: KubeError = field(default_factory=lambda: FORBIDDEN)
    driver: JobPodView = DRIVER
    asked: list[str] = field(default_factory=list)
    """The executors that were to be deleted."""

    def context(self) -> Context:
        context = cast("Any", OneOffWorld.context(self))
        context.audit_image = IMAGES
        context.audit_driver_role = "ClusterRole/dledger:audit-driver"
        return cast("Context", context)

    async def job(self, namespace: str, name: str) -> JobView | None:
        return JobView(
            uid="job-uid", owner_uid="audit-uid", ended=False, failure=None, started_at=NOW
        )

    async def job_pods(self, namespace: str, name: str, uid: str) -> list[JobPodView]:
        return [self.driver]

    async def executor_pods(self, namespace: str, name: str, drivers: set[str]) -> list[JobPodView]:
        return EXECUTORS

    async def delete_executor(self, namespace: str, pod: JobPodView) -> None:
        self.asked.append(pod.name)
        raise self.refusal

    async def apply(self, manifest: Mapping[str, Any]) -> None:
        assert manifest["kind"] == "RoleBinding"

    async def status_of(self, ip: str) -> NodeStatus:
        raise AssertionError(ip)

    def worker(self) -> AuditWorker:
        body = audit_body({"executors": {"max": 4}})
        self.objects["audit-uid"] = cast("Object", body)
        return AuditWorker(body, self.context(), lambda: None)


@pytest.mark.parametrize("refusal", [FORBIDDEN, WEBHOOK], ids=["forbidden", "denied"])
async def test_an_audit_ends_with_its_result_although_its_executors_stay(
    refusal: KubeError, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(refusal=refusal)
    worker = world.worker()
    await worker._run_once()
    assert world.outcome("audit-uid")[0] == "Running"

    message = SUMMARY.to_json().decode()
    world.driver = dataclasses.replace(
        DRIVER, running=False, exit_code=0, termination_message=message, finished_at=NOW
    )
    with caplog.at_level(logging.WARNING):
        await worker._run_once()

    assert world.outcome("audit-uid") == ("Finished", "Sound")
    assert world.asked == ["monthly-exec-1", "monthly-exec-2"], "each one is tried"
    assert str(refusal) in caplog.text


async def test_a_refusal_is_logged_once_and_tried_again_in_each_look(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The driver's pod has failed, and the Job tries again."""
    world = World(driver=dataclasses.replace(DRIVER, running=False, exit_code=1))
    worker = world.worker()

    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            await worker._run_once()

    assert world.outcome("audit-uid") == ("Pending", "TryingAgain")
    assert len(world.asked) == 5 * len(EXECUTORS)
    assert len(caplog.records) == 1
