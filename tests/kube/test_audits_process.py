"""Audits of one group on a real API server, with the operator as a process."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from api_server.client import ApiServer
from dledger_formats.audit import Verdict
from dledger_kube.cluster import API
from dledger_kube.operated import operated
from dledger_kube.played import Cluster, led_by
from dledger_kube.played_audits import BATCH, PlayedAudits
from dledger_operator.resources.audit_job import TRIES_AGAIN_MAX

pytest_plugins = ["api_server.fixtures"]

BEGAN, ENDED = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


@pytest.fixture
async def cluster(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with operated(api_server, tmp_path, members=3) as parts:
        yield Cluster(*parts)


async def test_two_audits_of_a_group_run_one_after_the_other_also_when_a_pod_is_lost(
    cluster: Cluster,
) -> None:
    audits = PlayedAudits(cluster.namespace)
    await cluster.create_group()
    await audits.ask("first")
    await cluster.until("the first begins", lambda: audits.jobs() == {"first-audit"})
    await audits.ask("later")
    await cluster.until("the other waits", lambda: audits.reason("later") == "EarlierAudit")

    await audits.begin("first", BEGAN)
    await cluster.until("the first runs", lambda: audits.reason("first") == "Running")
    await audits.lose("first")
    await cluster.until("it is tried again", lambda: audits.reason("first") == "TryingAgain")
    assert audits.jobs() == {"first-audit"}
    await audits.begin("first", BEGAN, pod="second")
    await audits.end("first", Verdict.SOUND, ENDED, pod="second")

    await cluster.until("the first is Sound", lambda: audits.reason("first") == "Sound")
    await cluster.until("the other begins", lambda: "later-audit" in audits.jobs())


async def test_a_job_whose_pod_was_killed_after_its_verdict_is_not_tried_again(
    cluster: Cluster,
) -> None:
    audits = PlayedAudits(cluster.namespace)
    await cluster.create_group()
    for name, killed in (("killed", True), ("ended", False)):
        await audits.ask(name)
        await cluster.until(f"{name} begins", lambda n=name: f"{n}-audit" in audits.jobs())
        await audits.begin(name, BEGAN)
        await audits.end(name, Verdict.DAMAGED, ENDED, killed=killed)
        await cluster.until(f"{name} counts", lambda n=name: audits.reason(n) == "Damaged")

    tries = {
        each["metadata"]["name"]: each["spec"]["backoffLimit"]
        for each in cluster.namespace.get("jobs", group=BATCH)["items"]
    }
    assert tries == {"killed-audit": 0, "ended-audit": TRIES_AGAIN_MAX}


async def test_a_pod_of_somebody_else_with_the_label_of_the_job_does_not_speak_for_it(
    cluster: Cluster,
) -> None:
    audits = PlayedAudits(cluster.namespace)
    await cluster.create_group()
    await audits.ask("first")
    await cluster.until("it begins", lambda: audits.jobs() == {"first-audit"})
    template = cluster.namespace.get("jobs", "first-audit", BATCH)["spec"]["template"]
    await audits.create_pod("first-audit-stranger", template)
    await audits.end("first", Verdict.SOUND, ENDED, pod="stranger")

    await audits.begin("first", BEGAN)
    await cluster.until(
        "it has looked", lambda: audits.reason("first") not in ("", "JobCreated"), 30
    )
    assert audits.reason("first") == "Running"
    await audits.end("first", Verdict.DAMAGED, ENDED)

    await cluster.until("the audit ends", lambda: audits.reason("first") == "Damaged")


async def test_an_audit_whose_job_the_api_server_refuses_is_not_in_the_way(
    cluster: Cluster,
) -> None:
    audits = PlayedAudits(cluster.namespace)
    await cluster.create_group()
    await audits.ask("first", resources={"requests": {"cpus": "1"}})
    await cluster.until("it fails", lambda: audits.reason("first") == "JobRefused")
    await audits.ask("later")

    await cluster.until("the other begins", lambda: audits.jobs() == {"later-audit"})
    status = audits.all()["first"]["status"]
    assert status["phase"] == "Failed"
    assert "cpus" in status["conditions"][0]["message"]
    await cluster.until(
        "the group is told", lambda: cluster.condition("AuditPassed")["reason"] == "Failed"
    )


def minutely(**audit: Any) -> dict[str, Any]:
    return {"audit": {"schedule": "* * * * *", "timeZone": "Europe/Berlin", **audit}}


def planned(audits: PlayedAudits, cause: str) -> list[str]:
    """The names of the audits that the operator has created for a cause, sorted."""
    label = "dledger.io/audit-cause"
    found = audits.all().items()
    return sorted(
        name for name, each in found if each["metadata"].get("labels", {}).get(label) == cause
    )


def events(cluster: Cluster) -> set[str]:
    """The reasons of all Events."""
    return {each["reason"] for each in cluster.namespace.get("events")["items"]}


async def test_a_schedule_creates_audits_that_the_group_owns_and_keeps_the_last(
    cluster: Cluster,
) -> None:
    audits = PlayedAudits(cluster.namespace)
    body = await cluster.create_group()
    await cluster.elect(1, 7)
    await cluster.until(
        "no audit has ended", lambda: cluster.condition("AuditPassed")["reason"] == "NeverAudited"
    )
    cluster.namespace.patch("dledgergroups", "flights", {"spec": minutely(keep=1)}, API)

    await cluster.until("an audit is due", lambda: planned(audits, "Schedule") != [], 90)
    (first,) = planned(audits, "Schedule")
    owner = audits.all()[first]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"]) == ("DLedgerGroup", body["metadata"]["uid"])
    await audits.run(first, Verdict.SOUND, cluster.until)
    await cluster.until(
        "the group has passed", lambda: cluster.condition("AuditPassed")["status"] == "True"
    )

    await cluster.until("an Event tells it", lambda: "AuditPassed" in events(cluster))
    cluster.operator.kill()
    cluster.operator.start()
    await cluster.until("another is due", lambda: planned(audits, "Schedule") != [first], 90)
    second = next(each for each in planned(audits, "Schedule") if each != first)
    await audits.run(second, Verdict.DAMAGED, cluster.until)

    await cluster.until("the first is gone", lambda: first not in audits.all())
    await cluster.until(
        "the group is told", lambda: cluster.condition("AuditPassed")["reason"] == "Damaged"
    )
    assert cluster.status()["lastAudit"]["name"] == second
    await cluster.until("an Event tells it", lambda: "AuditNotPassed" in events(cluster))
    assert "AuditCreated" in events(cluster)


async def test_a_schedule_that_no_calendar_has_is_told_and_harms_nothing(cluster: Cluster) -> None:
    await cluster.create_group()
    await cluster.elect(1, 7)
    wrong = {"spec": {"audit": {"schedule": "0 0 30 2 *"}}}
    cluster.namespace.patch("dledgergroups", "flights", wrong, API)

    await cluster.until(
        "the schedule is named",
        lambda: cluster.condition("AuditPassed")["reason"] == "InvalidSchedule",
    )
    await cluster.until("the group is ready", lambda: cluster.condition("Ready")["reason"] != "")
    assert cluster.condition("AuditPassed")["status"] == "Unknown"
    assert "0 0 30 2 *" in cluster.condition("AuditPassed")["message"]
    assert cluster.condition("Degraded")["reason"] != "InvalidSpec"


async def test_a_failover_is_audited_a_minute_later(cluster: Cluster) -> None:
    audits = PlayedAudits(cluster.namespace)
    await cluster.create_group()
    cluster.namespace.patch(
        "dledgergroups", "flights", {"spec": {"audit": {"afterFailover": True}}}, API
    )
    await cluster.elect(1, 7)
    await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))
    await cluster.until("it is planned", lambda: "auditPlan" in cluster.status())
    assert planned(audits, "Failover") == []

    since = datetime.fromisoformat(cluster.status()["auditPlan"]["since"])
    # The status has whole seconds, and a change of leaders in the first one is not after `since`.
    await cluster.until("a later second", lambda: datetime.now(UTC) > since + timedelta(seconds=1))
    await cluster.elect(2, 8)
    await cluster.until("n2 leads", lambda: cluster.last_change().get("to") == "n2")
    await cluster.until("an audit is created", lambda: planned(audits, "Failover") != [], 120)
