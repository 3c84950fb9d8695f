"""What an audit found becomes a condition of its group, and a later sound audit clears it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_server.client import ApiServer
from dledger_formats.audit import Verdict
from dledger_kube.cluster import API
from dledger_kube.objects import IMAGES, audit_body, group_body, observed_group
from dledger_kube.operated import operated
from dledger_kube.played import Cluster, led_by
from dledger_operator import names
from dledger_operator.behaviors.audits.seen import SeenAudits
from dledger_operator.behaviors.report.audit_events import audit_events
from dledger_operator.behaviors.report.audit_findings import (
    finding_of,
    finding_to_json,
    latest,
    recorded_finding,
)
from dledger_operator.metrics import OperatorMetrics
from dledger_operator.observed_state import DECIDING, AuditFinding
from dledger_operator.resources import audit_job
from dledger_operator.spec.audit_request import AuditRequest
from dledger_operator.spec.group import Group

pytest_plugins = ["api_server.fixtures"]

MORNING = datetime(2026, 3, 1, 8, tzinfo=UTC)


def finding(verdict: Verdict, at: datetime = MORNING) -> AuditFinding:
    return AuditFinding(audit="monthly", verdict=verdict, message="n2: 3 entries", started_at=at)


def ended(verdict: str, at: datetime, name: str = "monthly") -> dict[str, Any]:
    """The status of an audit that has ended."""
    condition = {
        "type": "Complete", "status": "True", "reason": verdict, "message": f"{name}: 3 entries",
        "lastTransitionTime": names.timestamp(at),
    }  # fmt: skip
    return {
        "phase": "Finished",
        "verdict": verdict,
        "startedAt": names.timestamp(at),
        "conditions": [condition],
    }


findings = st.builds(
    finding,
    st.sampled_from([Verdict.SOUND, Verdict.DAMAGED, Verdict.DIVERGED]),
    st.integers(0, 10**6).map(lambda minutes: MORNING + timedelta(minutes=minutes)),
)


@given(findings)
def test_a_finding_survives_in_the_status(found: AuditFinding) -> None:
    assert recorded_finding({"audit": finding_to_json(found)}) == found


@given(st.permutations([(Verdict.DAMAGED, 0), (Verdict.DIVERGED, 1), (Verdict.SOUND, 2)]))
def test_the_audit_that_began_last_counts_in_whatever_order_they_are_seen(
    order: list[tuple[Verdict, int]],
) -> None:
    audits = SeenAudits.of(group_body())
    for verdict, hours in order:
        audits.take(audit_body() | {"status": ended(verdict, MORNING + timedelta(hours=hours))})

    assert audits.finding is not None
    assert audits.finding.verdict is Verdict.SOUND
    assert audits.last is not None
    assert audits.last.result == "Sound"


def test_an_audit_of_an_earlier_group_of_the_name_says_nothing_about_this_one() -> None:
    audits = SeenAudits.of(group_body())
    before = datetime(2024, 1, 1, tzinfo=UTC)

    audits.take(audit_body() | {"status": ended("Damaged", before)})

    assert (audits.finding, audits.last) == (None, None)


def test_a_later_audit_that_could_not_tell_ends_no_alert_about_damage() -> None:
    audits, metrics = SeenAudits.of(group_body()), OperatorMetrics(clock=lambda: 0.0)
    for verdict, hours in (("Damaged", 0), ("Incomplete", 1)):
        audits.take(audit_body() | {"status": ended(verdict, MORNING + timedelta(hours=hours))})

    metrics.update_group(observed_group(audit=audits.finding, audits=audits.observed()), [])

    labels = {"namespace": "air", "group": "flights"}
    found = {
        verdict: metrics.registry.get_sample_value(
            "dledger_group_audit_finding", labels | {"verdict": verdict}
        )
        for verdict in DECIDING
    }
    assert found == {Verdict.SOUND: 0.0, Verdict.DAMAGED: 1.0, Verdict.DIVERGED: 0.0}


def test_what_a_deleted_audit_found_stays() -> None:
    audits = SeenAudits.of(group_body())
    body = audit_body() | {"status": ended("Damaged", MORNING)}

    audits.take(body)
    audits.forget(body)

    assert audits.finding == AuditFinding(
        audit="monthly", verdict=Verdict.DAMAGED, message="monthly: 3 entries", started_at=MORNING
    )
    assert audits.bodies == {}


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"phase": "Failed"},
        ended("Incomplete", MORNING),
        ended("Rotten", MORNING),
        {"verdict": "Damaged"},
        {"verdict": "Damaged", "startedAt": "today"},
        {"verdict": "Damaged", "startedAt": 7},
    ],
)
def test_an_audit_that_cannot_tell_changes_nothing(status: dict[str, Any]) -> None:
    assert finding_of(audit_body() | {"status": status}) is None
    assert latest(finding(Verdict.DAMAGED), None) == finding(Verdict.DAMAGED)


def test_the_job_is_told_to_succeed_once_it_has_a_verdict() -> None:
    audit = AuditRequest.from_body(audit_body())
    group = Group.from_body(group_body(), IMAGES)
    job = audit_job.build(
        audit, group, member_ids=["n0"], image="audit:1", image_pull_policy="Always"
    )

    assert "--verdict-exits-0" in job["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.fixture
async def cluster(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with operated(api_server, tmp_path, members=3) as parts:
        yield Cluster(*parts)


async def audited(cluster: Cluster, name: str, verdict: str, hours: int) -> None:
    """Create an audit, and write the status that its Job's end would give it."""
    sent = {
        "apiVersion": "dledger.io/v1alpha1",
        "kind": "DLedgerAudit",
        "metadata": {"name": name},
        "spec": {"groupRef": {"name": "flights"}},
    }
    began = datetime.now(UTC) + timedelta(hours=hours)
    path = cluster.namespace.path("dledgeraudits", group=API)
    server = cluster.namespace.server
    await asyncio.to_thread(server.request, "POST", path, sent)
    await asyncio.to_thread(
        server.request,
        "PATCH",
        f"{path}/{name}/status",
        {"status": ended(verdict, began, name)},
        content_type="application/merge-patch+json",
    )


async def test_damage_degrades_the_group_until_a_later_audit_is_sound(cluster: Cluster) -> None:
    await cluster.create_group()
    await cluster.elect(1, 7)
    await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))

    await audited(cluster, "first", "Damaged", hours=1)
    await cluster.until(
        "the group is degraded", lambda: cluster.condition("Degraded")["reason"] == "AuditDamaged"
    )
    message = cluster.condition("Degraded")["message"]
    assert message.startswith("audit first: first: 3 entries")
    assert "audit again" in message

    path = cluster.namespace.path("dledgeraudits", "first", API)
    await asyncio.to_thread(cluster.namespace.server.request, "DELETE", path)
    cluster.operator.kill()
    cluster.operator.start()
    await audited(cluster, "older", "Sound", hours=0)
    await audited(cluster, "partial", "Incomplete", hours=2)
    await cluster.until("the leader is reported", lambda: "leader" in cluster.status())
    assert cluster.condition("Degraded")["reason"] == "AuditDamaged", "no later sound audit"

    await audited(cluster, "repaired", "Sound", hours=3)
    await cluster.until(
        "the finding is cleared", lambda: cluster.condition("Degraded")["status"] == "False"
    )
    assert cluster.status()["audit"]["name"] == "repaired"


@pytest.mark.parametrize(
    ("result", "expected"), [("Sound", "AuditPassed"), ("Damaged", "AuditNotPassed")]
)
def test_an_event_tells_once_that_an_audit_has_ended(result: str, expected: str) -> None:
    at = names.timestamp(MORNING)
    last = {"lastAudit": {"name": "monthly", "result": result, "message": "so", "endedAt": at}}

    assert [each.reason for each in audit_events({}, last)] == [expected]
    assert audit_events(last, last) == audit_events({}, {}) == []
