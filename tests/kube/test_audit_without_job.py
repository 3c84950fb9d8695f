"""An audit that gets no Job ends, and lets the others of its group begin."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from dledger_formats.http.status import NodeStatus
from dledger_kube.objects import IMAGES, audit_body, group_body
from dledger_kube.objects import group as group_of
from dledger_kube.one_off_world import Object, OneOffWorld
from dledger_operator.api_objects import JobPodView, JobView
from dledger_operator.behaviors.audits.audit import WITHOUT_JOB_S_MAX, AuditWorker
from dledger_operator.behaviors.audits.seen import SeenAudits
from dledger_operator.behaviors.context import Context
from dledger_operator.clients.errors import InvalidError, KubeError, RefusedError
from dledger_operator.problem import Problem

QUOTA = RefusedError("apply Job air/first-audit: exceeded quota: pods")
WRONG = InvalidError("apply Job air/first-audit: cpus must be a standard resource type")
OTHERS = JobView(uid="others", owner_uid="other", ended=False, failure=None, started_at=None)


@dataclass(slots=True)
class World(OneOffWorld):
    """A cluster in which audits may be refused their Jobs."""

    refusals: dict[str, KubeError] = field(default_factory=dict)
    """The answer to the Job of an audit, by the audit's name."""
    jobs: dict[str, JobView] = field(default_factory=dict)

    def context(self) -> Context:
        context = cast("Any", OneOffWorld.context(self))
        context.audit_image = IMAGES
        context.audit_driver_role = ""
        return cast("Context", context)

    async def job(self, namespace: str, name: str) -> JobView | None:
        return self.jobs.get(name)

    async def job_pods(self, namespace: str, name: str, uid: str) -> list[JobPodView]:
        return []

    async def apply(self, manifest: Mapping[str, Any]) -> None:
        name, owner = manifest["metadata"]["name"], manifest["metadata"]["ownerReferences"][0]
        if refusal := self.refusals.get(owner["name"]):
            raise refusal
        self.jobs[name] = JobView(
            uid=f"{name}-uid", owner_uid=owner["uid"], ended=False, failure=None, started_at=None
        )

    async def status_of(self, ip: str) -> NodeStatus:
        raise AssertionError(ip)

    def ask(self, name: str, second: int) -> AuditWorker:
        body = audit_body(name=name)
        created = {"uid": f"{name}-uid", "creationTimestamp": f"2026-01-01T00:00:{second:02}Z"}
        body["metadata"] |= created
        self.objects[f"{name}-uid"] = cast("Object", body)
        return AuditWorker(body, self.context(), lambda: None)

    def message(self, name: str) -> str:
        return str(self.status(f"{name}-uid")["conditions"][0]["message"])


async def test_an_audit_whose_job_is_invalid_fails_at_once_and_the_next_one_begins() -> None:
    world = World(refusals={"first": WRONG})
    first, later = world.ask("first", 1), world.ask("later", 2)

    await later._run_once()
    waiting = world.outcome("later-uid")
    await first._run_once()
    await later._run_once()

    assert waiting == ("Pending", "EarlierAudit")
    assert world.outcome("first-uid") == ("Failed", "JobRefused")
    assert "standard resource type" in world.message("first")
    assert "finishedAt" in world.status("first-uid")
    assert world.outcome("later-uid") == ("Pending", "JobCreated")


async def test_an_audit_that_waits_for_its_turn_looks_once_a_minute() -> None:
    """An event wakes it when its turn may have come, and many audits may wait."""
    world, end_s = World(), 3600.0
    await world.ask("first", 1)._run_once()
    later = world.ask("later", 2)
    before = world.requests

    while world.now_s < end_s:
        again_s = await later._run_once()
        world.pass_time(later.pace.interval_s if again_s is None else again_s)

    assert world.outcome("later-uid") == ("Pending", "EarlierAudit")
    assert world.requests - before <= 2 * 61 + 2, "the group and the audits each time"


@pytest.mark.parametrize("reason", ["JobRefused", "JobNameTaken"])
async def test_an_audit_that_gets_no_job_for_ten_minutes_fails(reason: str) -> None:
    world = World(refusals={"first": QUOTA})
    if reason == "JobNameTaken":
        world.jobs["first-audit"] = OTHERS
    first = world.ask("first", 1)

    await first._run_once()
    world.pass_time(WITHOUT_JOB_S_MAX - 1)
    await first._run_once()
    before = world.outcome("first-uid")
    world.pass_time(1)
    await first._run_once()

    assert before == ("Pending", reason)
    assert world.outcome("first-uid") == ("Failed", reason)
    assert "10 minutes" in world.message("first")


@pytest.mark.parametrize("reason", ["JobRefused", "JobNameTaken"])
async def test_an_operator_that_restarts_all_the_time_ends_the_audit_no_later(reason: str) -> None:
    world = World(refusals={"first": QUOTA})
    if reason == "JobNameTaken":
        world.jobs["first-audit"] = OTHERS
    body = world.ask("first", 1)._body

    for _ in range(10):
        await AuditWorker(body, world.context(), lambda: None)._run_once()
        assert world.outcome("first-uid") == ("Pending", reason)
        world.pass_time(WITHOUT_JOB_S_MAX / 10)
        body = world.objects["first-uid"]
    await AuditWorker(body, world.context(), lambda: None)._run_once()

    assert world.outcome("first-uid") == ("Failed", reason)


async def test_the_ten_minutes_begin_again_after_a_cause_of_another_kind() -> None:
    world = World(refusals={"later": QUOTA})
    first, later = world.ask("first", 1), world.ask("later", 2)

    await first._run_once()
    world.objects["first-uid"]["status"]["phase"] = "Finished"
    await later._run_once()
    refused = world.status("later-uid").get("withoutJobSince")
    world.objects["first-uid"]["status"]["phase"] = "Pending"
    world.pass_time(WITHOUT_JOB_S_MAX)
    await later._run_once()

    assert refused == "2026-01-01T00:00:00Z"
    assert world.outcome("later-uid") == ("Pending", "EarlierAudit")
    assert "withoutJobSince" not in world.status("later-uid")


@pytest.mark.parametrize("since", ["yesterday", "2026-01-01", 7, "2999-01-01T00:00:00Z"])
async def test_a_time_that_somebody_has_edited_makes_no_audit_wait_for_ever(since: object) -> None:
    world = World(refusals={"first": QUOTA})
    body = world.ask("first", 1)._body
    edited = body | {"status": {"phase": "Pending", "withoutJobSince": since}}
    first = AuditWorker(edited, world.context(), lambda: None)

    await first._run_once()
    world.pass_time(WITHOUT_JOB_S_MAX)
    await first._run_once()

    assert world.outcome("first-uid") == ("Failed", "JobRefused")


async def test_an_audit_gets_its_job_once_the_quota_has_room() -> None:
    world = World(refusals={"first": QUOTA})
    first = world.ask("first", 1)

    await first._run_once()
    world.refusals.clear()
    world.pass_time(WITHOUT_JOB_S_MAX)
    await first._run_once()

    assert world.outcome("first-uid") == ("Pending", "JobCreated")


async def test_what_waits_for_an_audit_names_it_and_why_it_has_not_begun() -> None:
    world = World(refusals={"first": QUOTA})
    first, later = world.ask("first", 1), world.ask("later", 2)

    await first._run_once()
    await later._run_once()

    assert "first of the same group goes first; it is JobRefused" in world.message("later")


def held_back(*bodies: Object) -> Problem | None:
    seen = SeenAudits.of(group_body())
    for body in bodies:
        seen.take(body)
    return seen.holds_back(group_of(audit={"beforeScalingDown": True}))


async def test_a_removal_that_waits_names_the_audit_in_the_way_and_its_reason() -> None:
    world = World(refusals={"first": QUOTA})
    first = world.ask("first", 1)
    await first._run_once()
    refused = held_back(world.objects["first-uid"])
    world.refusals.clear()
    await first._run_once()
    begun = held_back(world.objects["first-uid"])

    assert refused is not None
    assert "first waits: JobRefused: apply Job" in refused.message
    assert begun is not None
    assert "audit first is JobCreated" in begun.message
