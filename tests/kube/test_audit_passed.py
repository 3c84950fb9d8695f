"""The condition AuditPassed of a group, and its metrics."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from dledger_formats.audit import Verdict
from dledger_kube.objects import NOW, observed_group
from dledger_operator.conditions import audit_passed, of_group
from dledger_operator.metrics import OperatorMetrics
from dledger_operator.observed_audits import AuditPlan, EndedAudit, ObservedAudits
from dledger_operator.observed_state import AuditFinding, ObservedGroup
from dledger_operator.problem import Problem

NIGHT = datetime(2026, 3, 1, 3, tzinfo=UTC)
DAMAGED = AuditFinding(
    audit="old", verdict=Verdict.DAMAGED, message="n2: 3 entries", started_at=NIGHT
)
SOUND = AuditFinding(audit="old", verdict=Verdict.SOUND, message="all agree", started_at=NIGHT)
WRONG = Problem(reason="InvalidSchedule", message="spec.audit.schedule is '61 3 * * *': bad minute")


def ended(result: str, hours: int) -> EndedAudit:
    at = NIGHT + timedelta(hours=hours)
    return EndedAudit(audit="new", result=result, message="so it was", started_at=at, ended_at=at)


def audited(finding: AuditFinding | None, **audits: object) -> ObservedGroup:
    return observed_group(audit=finding, audits=ObservedAudits(**audits))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("group", "expected", "words"),
    [
        pytest.param(audited(None), ("Unknown", "NeverAudited"), "create a D", id="none"),
        pytest.param(
            audited(SOUND, last=ended("Sound", 0)), ("True", "Sound"), "old, begun at", id="ok"
        ),
        pytest.param(
            audited(DAMAGED, last=ended("Damaged", 0)), ("False", "Damaged"), "again", id="bad"
        ),
        pytest.param(
            audited(DAMAGED, last=ended("Incomplete", 9)), ("False", "Damaged"), "old",
            id="damage outlasts what could not tell",
        ),
        pytest.param(
            audited(SOUND, last=ended("Incomplete", 9)), ("Unknown", "Incomplete"), "old, begun",
            id="could not tell",
        ),
        pytest.param(
            audited(SOUND, last=ended("Failed", 9)), ("Unknown", "Failed"), "without a verdict",
            id="no verdict",
        ),
        pytest.param(
            audited(SOUND, last=ended("Incomplete", -9)), ("True", "Sound"), "all agree",
            id="an older one could not tell",
        ),
        pytest.param(
            audited(SOUND, problem=WRONG), ("Unknown", "InvalidSchedule"), "bad minute",
            id="a wrong schedule",
        ),
        pytest.param(
            audited(SOUND, problem=WRONG, last=ended("Incomplete", 9)), ("Unknown", "Incomplete"),
            "audit new: so it was", id="a later result comes before a wrong schedule",
        ),
        pytest.param(
            audited(SOUND, problem=WRONG, last=ended("Failed", 9)), ("Unknown", "Failed"),
            "bad minute", id="and tells the schedule too",
        ),
        pytest.param(
            audited(DAMAGED, problem=WRONG), ("False", "Damaged"), "old", id="damage comes first"
        ),
        pytest.param(
            audited(SOUND, plan=AuditPlan(since=NIGHT, next_at=NIGHT)), ("True", "Sound"),
            "the next one is due at 2026-03-01T03:00:00Z", id="the next one",
        ),
        pytest.param(
            audited(None, waiting="audit x waits: JobRefused: quota"), ("Unknown", "NeverAudited"),
            "audit x waits: JobRefused: quota", id="one that waits",
        ),
    ],
)  # fmt: skip
def test_the_condition_tells_what_the_last_audit_found_and_what_to_do(
    group: ObservedGroup, expected: tuple[str, str], words: str
) -> None:
    built = of_group.build(group, previous=[], now=NOW, generation=1)
    condition = next(each for each in built if each["type"] == audit_passed.TYPE)

    assert (condition["status"], condition["reason"]) == expected
    assert words in condition["message"]


def exposed(group: ObservedGroup, name: str, **labels: str) -> float | None:
    """The value of a metric of the group; None if it has none."""
    metrics = OperatorMetrics(clock=time.monotonic)
    metrics.update_group(group, [])
    return metrics.registry.get_sample_value(
        name, {"namespace": "air", "group": "flights"} | labels
    )


@pytest.mark.parametrize("result", ["Sound", "Incomplete", "Damaged", "Diverged", "Failed"])
def test_a_metric_tells_the_result_of_the_last_audit(result: str) -> None:
    group = audited(DAMAGED, last=ended("Damaged", 1))

    assert exposed(group, "dledger_group_last_audit", result=result) == (result == "Damaged")


def test_a_metric_tells_when_the_last_audit_ended() -> None:
    name = "dledger_group_last_audit_timestamp_seconds"
    later = NIGHT + timedelta(hours=1)

    assert exposed(audited(DAMAGED, last=ended("Damaged", 1)), name) == later.timestamp()
    assert exposed(audited(None), name) is None
