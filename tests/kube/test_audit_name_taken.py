"""An audit that exists already counts only if it is the one that is to be created."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger_formats.audit import Verdict
from dledger_kube.objects import IMAGES, NOW, group, group_body, membership, pod
from dledger_operator import names
from dledger_operator.behaviors.audits.group_audits import GroupAudits, _manifest
from dledger_operator.behaviors.audits.planning import SCALING_DOWN, SCHEDULE, NewAudit
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.clients.errors import ConflictError, RefusedError
from dledger_operator.observed_state import AuditFinding

BEFORE_SCALING_DOWN = {"beforeScalingDown": True}


class Api:
    """An API server with DLedgerAudits."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.refuses = False
        self.asked: list[Mapping[str, Any]] = []

    def put(self, name: str, at: datetime, owner: str) -> dict[str, Any]:
        metadata = {
            "namespace": "air", "name": name, "uid": f"{name}-uid",
            "creationTimestamp": names.timestamp(at), "ownerReferences": [{"uid": owner}],
        }  # fmt: skip
        self.stored[name] = {"metadata": metadata, "spec": {"groupRef": {"name": "flights"}}}
        return self.stored[name]

    async def create_custom_object(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        name = body["metadata"]["name"]
        if self.refuses:
            raise RefusedError("exceeded quota: dledgeraudits")
        if name in self.stored:
            raise ConflictError(name)
        return self.put(name, NOW, body["metadata"]["ownerReferences"][0]["uid"])

    async def custom_objects(self, kind: str, namespace: str) -> list[dict[str, Any]]:
        return [*self.stored.values()]


def shrinking(
    api: Api, now: datetime, audit: Mapping[str, Any] = BEFORE_SCALING_DOWN
) -> tuple[GroupAudits, GroupSnapshot, SimpleNamespace]:
    """A group of five members that is to have three, from a time on."""
    spec = {"replicas": 3, "audit": dict(audit)}
    snapshot = GroupSnapshot.of(group_body(spec), IMAGES)
    snapshot.membership = membership(5)
    snapshot.reconciled = cast("Any", SimpleNamespace(generation=1))
    snapshot.followed = cast("Any", SimpleNamespace(pods=[pod(k) for k in range(5)]))
    context = SimpleNamespace(api=api, now=lambda: context.time, time=now)
    audits = GroupAudits(cast("Any", context), snapshot, lambda _: None, lambda *_: None)
    return audits, snapshot, context


async def test_an_audit_before_a_removal_reads_everything() -> None:
    kept = {"persistentVolumeClaim": {"claimName": "audits"}, "sinceLast": True}
    asked = group(audit={"schedule": "@daily", "beforeScalingDown": True, "history": kept})
    assert asked.audit is not None

    made = {
        cause: _manifest(asked, asked.audit, NewAudit(name="a", cause=cause, why=""))
        for cause in (SCHEDULE, SCALING_DOWN)
    }

    assert made[SCHEDULE]["spec"]["history"] == kept
    assert made[SCALING_DOWN]["spec"]["history"] == kept | {"sinceLast": False}


@pytest.mark.parametrize("found", [Verdict.DAMAGED, Verdict.DIVERGED, Verdict.SOUND])
async def test_an_audit_after_one_that_found_damage_reads_everything(found: Verdict) -> None:
    """An audit without this history may have found it, in entries that the history has as sound."""
    kept = {"persistentVolumeClaim": {"claimName": "audits"}, "sinceLast": True}
    api, asked = Api(), {"schedule": "@daily", "history": kept}
    audits, snapshot, context = shrinking(api, NOW, audit=asked)
    snapshot.audits.finding = AuditFinding(
        audit="by-hand", verdict=found, message="", started_at=NOW
    )
    await audits.run_once()
    context.time = NOW + timedelta(days=1)

    await audits.run_once()

    (made,) = api.asked
    assert made["spec"]["history"] == kept | {"sinceLast": found is Verdict.SOUND}


MINUTE = timedelta(minutes=1)
NAME = f"flights-s{NOW:%y%m%d%H%M}"
OURS = str(group_body()["metadata"]["uid"])


def planned(snapshot: GroupSnapshot) -> str:
    """The audit that lets the members be removed; empty for none."""
    plan = snapshot.audits.plan
    return plan.shrinking.audit if plan and plan.shrinking else ""


@pytest.mark.parametrize(
    ("owner", "since_s", "expected"),
    [
        pytest.param(OURS, 0, NAME, id="created for this removal"),
        pytest.param(OURS, 20, "", id="created before it"),
        pytest.param("another", 0, "", id="of an earlier group"),
    ],
)
async def test_an_existing_audit_permits_a_removal_only_if_it_was_created_for_it(
    owner: str, since_s: int, expected: str
) -> None:
    api = Api()
    api.put(NAME, NOW, owner)
    audits, snapshot, _ = shrinking(api, NOW + timedelta(seconds=since_s))

    await audits.run_once()

    assert planned(snapshot) == expected


async def test_a_removal_in_the_minute_of_an_earlier_one_gets_its_audit_in_the_next_minute() -> (
    None
):
    api = Api()
    api.put(NAME, NOW, OURS)
    audits, snapshot, context = shrinking(api, NOW + timedelta(seconds=20))

    await audits.run_once()
    context.time = NOW + MINUTE
    await audits.run_once()

    assert planned(snapshot) == f"flights-s{NOW + MINUTE:%y%m%d%H%M}"


async def test_an_audit_by_hand_permits_a_removal_whose_own_audit_is_refused() -> None:
    api = Api()
    api.refuses = True
    audits, snapshot, context = shrinking(api, NOW)
    assert snapshot.group is not None

    await audits.run_once()
    before = snapshot.audits.holds_back(snapshot.group)
    by_hand = api.put("by-hand", NOW + MINUTE, "")
    by_hand["status"] = {
        "phase": "Finished", "verdict": "Sound", "startedAt": names.timestamp(NOW + MINUTE),
        "finishedAt": names.timestamp(NOW + MINUTE), "conditions": [{"message": "all agree"}],
    }  # fmt: skip
    snapshot.audits.take(by_hand)
    context.time = NOW + 2 * MINUTE
    await audits.run_once()

    assert before is not None
    assert before.reason == "AuditGoesFirst"
    assert snapshot.audits.holds_back(snapshot.group) is None


@pytest.mark.parametrize(
    ("audit", "expected"),
    [
        pytest.param({}, "no audit is created by a schedule: spec.audit.schedule", id="alone"),
        pytest.param(
            {"afterFailover": True, "beforeScalingDown": True},
            "those after failovers and before members are removed still are: spec", id="others",
        ),
    ],
)  # fmt: skip
async def test_a_wrong_schedule_is_told_with_the_audits_that_still_are_created(
    audit: dict[str, bool], expected: str
) -> None:
    audits, snapshot, _ = shrinking(Api(), NOW)
    spec = {"replicas": 3, "audit": {"schedule": "0 0 30 2 *", **audit}}
    snapshot.take_spec(group_body(spec), IMAGES)

    await audits.run_once()

    problem = snapshot.audits.problem
    assert problem is not None
    assert problem.reason == "InvalidSchedule"
    assert expected in problem.message


async def test_an_audit_of_somebody_else_in_the_way_is_named() -> None:
    api = Api()
    api.put(NAME, NOW, "another")
    audits, snapshot, _ = shrinking(api, NOW)

    await audits.run_once()

    problem = snapshot.audits.problem
    assert problem is not None
    assert problem.reason == "AuditRefused"
    assert NAME in problem.message
