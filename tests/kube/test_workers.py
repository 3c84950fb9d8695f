"""One task per object, for watch events in any order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from dledger_kube.objects import audit_body, group_body, observed_group
from dledger_kube.worker_context import DownApi, without_server
from dledger_operator.behaviors.leases.duties import Duties, Duty
from dledger_operator.behaviors.workers import WorkerFailedError, Workers
from dledger_operator.canary_metrics import Outcome
from dledger_operator.clients.errors import NotFoundError
from dledger_operator.clients.member_http import MemberHttpClient
from dledger_operator.metrics import OperatorMetrics


class WithoutAuditsApi(DownApi):
    """An API server that knows no Job and no DLedgerAudit."""

    async def job(self, *_: object) -> None:
        return None

    async def apply_status(self, kind: str, *_: object) -> None:
        raise NotFoundError(f"{kind}: not found")


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    async with workers_at(DownApi()) as made:
        yield made


@asynccontextmanager
async def workers_at(server: DownApi) -> AsyncIterator[Workers]:
    """Run the workers of an operator; stop them in the end."""
    member_http = MemberHttpClient.open()
    made = Workers(without_server(member_http, server))
    try:
        yield made
    finally:
        await made.stop()
        await member_http.close()


def tasks() -> set[str]:
    """Names of the running worker tasks."""
    return {
        task.get_name()
        for task in asyncio.all_tasks()
        if task.get_name().startswith("worker ") and not task.cancelling()
    }


def running_audit(uid: str = "audit-uid") -> dict[str, Any]:
    """Return an audit of the group whose Job runs."""
    body = audit_body() | {"status": {"phase": "Running", "job": "monthly-audit"}}
    body["metadata"] |= {"uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return body


def audits_of_the_group(workers: Workers) -> set[str]:
    """The uids of the audits that the group's worker knows."""
    worker = workers._groups.get(("air", "flights"))
    assert worker is not None
    return set(worker._snapshot.audits.bodies)


async def test_a_repeated_event_starts_no_second_worker(workers: Workers) -> None:
    workers.group_changed(group_body())
    workers.group_changed(group_body())

    assert workers.check() == {"groups": 1, "audits": 0, "switchovers": 0, "replacements": 0}
    assert tasks() == {"worker air/flights"}


async def test_a_deleted_group_has_no_worker(workers: Workers) -> None:
    workers.group_changed(group_body())
    workers.group_deleted(group_body())

    assert workers.check()["groups"] == 0
    assert tasks() == set()


async def test_the_worker_of_a_deleted_group_acts_no_more(workers: Workers) -> None:
    """A loop that went on for a moment would export metrics that nobody removes."""
    workers.group_changed(group_body())
    worker = workers._groups.get(("air", "flights"))
    assert worker is not None
    assert worker.loops.acts

    workers.group_deleted(group_body())

    assert not worker.loops.acts


async def test_a_recreated_group_replaces_the_worker_of_the_old_one(
    workers: Workers,
) -> None:
    workers.group_changed(group_body(uid="first"))
    workers.group_changed(group_body(uid="second"))

    assert workers.check()["groups"] == 1
    assert len(tasks()) == 1


async def test_a_late_deletion_of_an_old_group_does_not_stop_the_new_ones_worker(
    workers: Workers,
) -> None:
    workers.group_changed(group_body(uid="first"))
    workers.group_changed(group_body(uid="second"))
    workers.group_deleted(group_body(uid="first"))

    assert workers.check()["groups"] == 1


async def test_the_deletion_of_an_unknown_group_is_ignored(workers: Workers) -> None:
    workers.group_deleted(group_body())

    assert workers.check()["groups"] == 0


async def test_an_audit_that_has_ended_gets_no_worker(workers: Workers) -> None:
    workers.audit_changed(audit_body() | {"status": {"phase": "Finished"}})
    workers.audit_changed(audit_body(name="other"))

    assert workers.check() == {"groups": 0, "audits": 1, "switchovers": 0, "replacements": 0}


async def test_a_group_forgets_an_audit_whose_deletion_no_watch_event_told() -> None:
    async with workers_at(WithoutAuditsApi()) as workers:
        workers.group_changed(group_body())
        workers.audit_changed(running_audit())
        assert audits_of_the_group(workers) == {"audit-uid"}

        ended, _ = await asyncio.wait(workers._audits.tasks(), timeout=5)

        assert len(ended) == 1
        assert audits_of_the_group(workers) == set()


async def test_a_group_forgets_an_audit_that_was_created_again_unseen(workers: Workers) -> None:
    workers.group_changed(group_body())
    workers.audit_changed(running_audit())
    workers.audit_changed(running_audit(uid="second"))

    assert audits_of_the_group(workers) == {"second"}


async def test_a_late_deletion_of_an_old_audit_keeps_the_new_one(workers: Workers) -> None:
    workers.group_changed(group_body())
    workers.audit_changed(running_audit())
    workers.audit_changed(running_audit(uid="second"))
    workers.audit_deleted(running_audit())

    assert audits_of_the_group(workers) == {"second"}
    assert workers.check()["audits"] == 1


async def test_events_of_children_of_unknown_groups_are_ignored(workers: Workers) -> None:
    child = {"metadata": {"namespace": "air", "labels": {"dledger.io/group": "gone"}}}

    workers.pod_changed("ADDED", child)
    workers.endpoints_changed(child)
    workers.child_changed("DELETED", child)


async def test_events_start_no_worker_after_the_stop(workers: Workers) -> None:
    workers.group_changed(group_body())
    await workers.stop()
    workers.group_changed(group_body(uid="second"))
    workers.audit_changed(audit_body())

    assert tasks() == set()
    assert workers.check() == {"groups": 0, "audits": 0, "switchovers": 0, "replacements": 0}


async def test_a_worker_that_others_have_cancelled_fails_the_liveness_check(
    workers: Workers,
) -> None:
    """kopf did so when it ended: the probe counted a group that nobody took care of."""
    workers.group_changed(group_body())
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "worker air/flights"]
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    with pytest.raises(WorkerFailedError, match="worker air/flights: it was cancelled"):
        workers.check()


async def test_a_release_that_loses_a_namespace_exports_nothing_of_its_groups() -> None:
    member_http = MemberHttpClient.open()
    context = without_server(member_http)
    duties = GivenDuties(Duty.ALL)
    made = Workers(replace(context, duties=cast("Duties", duties)))
    made.group_changed(group_body())
    context.metrics.update_group(observed_group(), [])
    context.metrics.canaries.of("air", "flights").count(Outcome.ACKNOWLEDGED)
    assert series_of_groups(context.metrics)

    duties.duty = Duty.NOTHING
    made.duties_changed()

    assert series_of_groups(context.metrics) == set()
    await made.stop()
    await member_http.close()


class GivenDuties:
    """Duties that are the same in every namespace."""

    def __init__(self, duty: Duty) -> None:
        self.duty = duty
        self.acts = True

    def of(self, _: str) -> Duty:
        return self.duty

    def epoch(self, _: str) -> tuple[int, int]:
        return (1, 1)

    def of_others(self) -> dict[str, str]:
        return {}

    def watch_namespaces(self, _: set[str]) -> None:
        pass


def series_of_groups(metrics: OperatorMetrics) -> set[str]:
    return {
        sample.name
        for family in metrics.registry.collect()
        for sample in family.samples
        if "group" in sample.labels
    }


async def test_a_crashed_worker_fails_the_liveness_check(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def break_down(_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("dledger_operator.behaviors.group_worker.GroupWorker.run", break_down)
    workers.group_changed(group_body())
    await asyncio.sleep(0)

    with pytest.raises(WorkerFailedError, match="oops"):
        workers.check()


async def test_a_turn_that_never_ends_fails_the_liveness_check(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, never = asyncio.Event(), asyncio.Event()

    async def hang(_: object) -> None:
        began.set()
        await never.wait()

    monkeypatch.setattr("dledger_operator.behaviors.group_worker.GroupWorker._observe", hang)
    workers.group_changed(group_body())
    await began.wait()
    assert workers.check()["groups"] == 1

    monkeypatch.setattr("dledger_operator.behaviors.workers.TURN_S_MAX", 0.0)
    with pytest.raises(WorkerFailedError, match="air/flights: observe: its turn lasts longer"):
        workers.check()


async def test_stopping_ends_every_task(workers: Workers) -> None:
    workers.group_changed(group_body())
    workers.audit_changed(audit_body())
    before = tasks()

    await workers.stop()

    assert len(before) == 2
    assert tasks() == set()
