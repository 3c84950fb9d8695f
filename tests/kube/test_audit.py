"""How an audit's Job and pod become the status of its object."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from dledger_formats.audit import AuditSummary, Finding, Verdict
from dledger_kube.objects import NOW, audit_body
from dledger_kube.objects import group as group_of
from dledger_operator.api_objects import JobPodView, JobView
from dledger_operator.behaviors.audits.audit import audited_members, build_status
from dledger_operator.behaviors.audits.judging import Outcome, judge
from dledger_operator.problem import Problem
from dledger_operator.spec.audit_request import AuditRequest
from dledger_operator.spec.spec_reader import InvalidSpecError

FINDING = Finding(
    check="bad_body_crc", severity="critical", member="n1", segment="0" * 20,
    first_index=4, last_index=4, detail="stored 1, computed 2",
)  # fmt: skip
SUMMARY = AuditSummary(
    verdict=Verdict.DAMAGED, message="one entry of n1 is damaged", members=["n0", "n1", "n2"],
    entries=10, record_bytes=1000, agreed_index=9, findings=1, first_findings=[FINDING],
)  # fmt: skip
JOB = JobView(uid="job-uid", owner_uid="audit-uid", ended=False, failure=None, started_at=NOW)
ENDED_JOB = dataclasses.replace(JOB, ended=True)


def pod(**fields: Any) -> JobPodView:
    values: dict[str, Any] = {
        "name": "a-audit-x", "running": False, "exit_code": None, "termination_message": "",
        "finished_at": None, "problem": None, "uid": "pod-uid", "controller_uid": "job-uid",
    }  # fmt: skip
    return JobPodView(**values | fields)


EVICTED = pod(exit_code=137, problem=Problem(reason="Evicted", message="the node ran out of room"))
GIVEN_UP = dataclasses.replace(
    ENDED_JOB, failure=Problem(reason="BackoffLimitExceeded", message="failed too often")
)


def judged(job: JobView, *pods: JobPodView) -> tuple[str, str]:
    outcome = judge(job, pods, name="a-audit")
    return outcome.phase, outcome.reason


def test_an_audit_with_a_summary_is_finished_whatever_its_verdict() -> None:
    ended = pod(exit_code=4, termination_message=SUMMARY.to_json().decode(), finished_at=NOW)

    outcome = judge(ENDED_JOB, [ended], name="a-audit")

    assert (outcome.phase, outcome.reason) == ("Finished", "Damaged")
    assert outcome.summary == SUMMARY
    assert (outcome.started_at, outcome.finished_at) == (NOW, NOW)


def test_the_first_of_several_results_counts() -> None:
    """A pod that was killed after it had written its result was tried again meanwhile."""
    sound = dataclasses.replace(SUMMARY, verdict=Verdict.SOUND)
    first = pod(name="z", exit_code=137, termination_message=SUMMARY.to_json().decode())
    second = pod(name="a", exit_code=0, termination_message=sound.to_json().decode())
    first = dataclasses.replace(first, finished_at=NOW)
    second = dataclasses.replace(second, finished_at=NOW + timedelta(minutes=1))

    assert judged(JOB, second, first) == ("Finished", "Damaged")


@pytest.mark.parametrize(
    ("job", "pods", "expected"),
    [
        pytest.param(JOB, [], ("Pending", "JobCreated"), id="no pod yet"),
        pytest.param(JOB, [pod()], ("Pending", "JobCreated"), id="a starting pod"),
        pytest.param(JOB, [pod(running=True)], ("Running", "Running"), id="running"),
        pytest.param(
            JOB,
            [pod(problem=Problem(reason="ErrImagePull", message="no such image"))],
            ("Pending", "ErrImagePull"),
            id="an image that does not exist",
        ),
        pytest.param(JOB, [EVICTED], ("Pending", "TryingAgain"), id="evicted"),
        pytest.param(JOB, [EVICTED, pod(running=True)], ("Running", "Running"), id="tried again"),
        pytest.param(
            JOB,
            [EVICTED, pod(problem=Problem(reason="Unschedulable", message="no node has room"))],
            ("Pending", "Unschedulable"),
            id="tried again, without room",
        ),
        pytest.param(
            JOB,
            [EVICTED, pod(exit_code=0, termination_message=SUMMARY.to_json().decode())],
            ("Finished", "Damaged"),
            id="evicted once",
        ),
        pytest.param(
            GIVEN_UP,
            [pod(exit_code=137, problem=Problem(reason="OOMKilled", message="exit code 137"))],
            ("Failed", "OOMKilled"),
            id="killed each time",
        ),
        pytest.param(GIVEN_UP, [], ("Failed", "BackoffLimitExceeded"), id="lost each time"),
        pytest.param(
            dataclasses.replace(
                ENDED_JOB, failure=Problem(reason="DeadlineExceeded", message="too long")
            ),
            [EVICTED],
            ("Failed", "DeadlineExceeded"),
            id="evicted, then past its deadline",
        ),
        pytest.param(
            ENDED_JOB,
            [pod(exit_code=0, termination_message="hello")],
            ("Failed", "NoSummary"),
            id="no summary",
        ),
        pytest.param(
            dataclasses.replace(
                ENDED_JOB, failure=Problem(reason="DeadlineExceeded", message="too long")
            ),
            [],
            ("Failed", "DeadlineExceeded"),
            id="past its deadline",
        ),
        pytest.param(ENDED_JOB, [], ("Failed", "ResultLost"), id="a deleted pod"),
    ],
)
def test_the_phase_of_an_audit_follows_from_its_job_and_pods(
    job: JobView, pods: list[JobPodView], expected: tuple[str, str]
) -> None:
    assert judged(job, *pods) == expected


def test_an_audit_that_is_given_up_tells_how_often_it_was_tried_and_why_the_last_pod_ended() -> (
    None
):
    first = dataclasses.replace(EVICTED, name="a-audit-z", finished_at=NOW)
    last = pod(
        name="a-audit-b", exit_code=137, finished_at=NOW + timedelta(minutes=1),
        problem=Problem(reason="OOMKilled", message="exit code 137"),
    )  # fmt: skip

    outcome = judge(GIVEN_UP, [first, last], name="a-audit")

    assert outcome.message.startswith("pod a-audit-b terminated with exit code 137 (OOMKilled)")
    assert "has given up after 2 tries" in outcome.message
    assert outcome.finished_at == last.finished_at


def status(outcome: Outcome, previous: dict[str, Any] | None = None) -> dict[str, Any]:
    return build_status(outcome, generation=1, previous=previous or {}, now=NOW)


def test_the_status_of_a_finished_audit_contains_its_result() -> None:
    built = status(
        Outcome(
            phase="Finished", reason="Damaged", message=SUMMARY.message, job="a-audit",
            summary=SUMMARY, started_at=NOW, finished_at=NOW,
        )
    )  # fmt: skip

    assert built == {
        "observedGeneration": 1,
        "phase": "Finished",
        "job": "a-audit",
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:00Z",
        "verdict": "Damaged",
        "entries": 10,
        "bytes": 1000,
        "agreedIndex": 9,
        "findings": 1,
        "firstFindings": [
            {
                "check": "bad_body_crc", "severity": "critical", "member": "n1",
                "segment": "0" * 20, "firstIndex": 4, "lastIndex": 4,
                "detail": "stored 1, computed 2",
            }
        ],
        "conditions": [
            {
                "type": "Complete", "status": "True", "reason": "Damaged",
                "message": "one entry of n1 is damaged",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
            }
        ],
    }  # fmt: skip


def test_the_condition_of_a_waiting_audit_gives_the_reason() -> None:
    built = status(Outcome(phase="Pending", reason="GroupNotFound", message="it does not exist"))

    assert built["conditions"][0]["reason"] == "GroupNotFound"
    assert "job" not in built


def test_the_largest_summary_still_fits_a_status() -> None:
    many = dataclasses.replace(SUMMARY, findings=10_000, first_findings=[FINDING] * 100)
    ended = pod(exit_code=4, termination_message=many.to_json().decode())
    outcome = judge(ENDED_JOB, [ended], name="a-audit")

    assert 1 <= len(status(outcome)["firstFindings"]) <= 10


def test_the_learners_of_a_group_are_audited_with_its_voters() -> None:
    group = group_of()
    members = [
        {"id": "n0", "membership": "Voter"},
        {"id": "n1", "membership": "Voter"},
        {"id": "n2", "membership": "None"},
        {"id": "n3", "membership": "Learner"},
    ]

    assert audited_members({"members": members}, group) == ["n0", "n1", "n3"]
    assert audited_members({}, group) == sorted(group.member_ids)


def test_a_spec_has_defaults() -> None:
    request = AuditRequest.from_body(audit_body())

    assert (request.group_name, request.level) == ("flights", "Full")
    assert request.ttl_after_finished_s == 24 * 3600
    assert request.resources["limits"] == {"memory": "2Gi"}


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"groupRef": {}}, "spec.groupRef.name is missing"),
        ({"level": "Some"}, "it must be Full"),
        ({"ttlAfterFinished": "soon"}, "spec.ttlAfterFinished"),
    ],
)
def test_an_invalid_key_of_a_spec_is_named(spec: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidSpecError, match=complaint):
        AuditRequest.from_body(audit_body(spec))


def test_a_name_too_long_for_its_job_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="longer than 52"):
        AuditRequest.from_body(audit_body(name="a" * 53))
