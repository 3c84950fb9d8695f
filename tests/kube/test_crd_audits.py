"""The CRD of DLedgerAudit on a real API server: validation, storage and printed columns."""

import re

import pytest

from api_server.client import ApiServer, RefusedError
from api_server.objects import MERGE_PATCH, Object, audit, check, check_change, path, stored

pytest_plugins = ["api_server.fixtures"]

DEFAULTS = {
    "groupRef": {"name": "flights"},
    "level": "Full",
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
    "ttlAfterFinished": "24h",
}

STATUS = {
    "observedGeneration": 1,
    "phase": "Finished",
    "job": "flights-1-audit",
    "verdict": "Damaged",
    "entries": 336776,
    "bytes": 98304000,
    "agreedIndex": 336775,
    "findings": 1,
    "firstFindings": [
        {
            "check": "bad_body_crc",
            "severity": "critical",
            "member": "n2",
            "segment": "00000000000000000000",
            "firstIndex": 17,
            "lastIndex": 17,
            "detail": "body of entry 17 at byte 6018",
        }
    ],
    "startedAt": "2026-01-01T00:00:00Z",
    "finishedAt": "2026-01-01T00:01:00Z",
    "conditions": [
        {
            "type": "Complete",
            "status": "True",
            "reason": "Damaged",
            "message": "n2 holds a damaged entry",
            "lastTransitionTime": "2026-01-01T00:01:00Z",
            "observedGeneration": 1,
        }
    ],
}

REFUSED: dict[str, tuple[Object, str]] = {
    "a time too short to read the result": (
        {"ttlAfterFinished": "59s"},
        "at least 1m, so that the operator can read the result, and at most 720h, but is 59s",
    ),
    "a time too long": ({"ttlAfterFinished": "721h"}, "but is 721h"),
    "a request above its limit": (
        {"resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": 1}}},
        "a request must not exceed the limit for the same resource",
    ),
    "an unknown level": ({"level": "Index"}, 'supported values: "Full"'),
    "no group": ({"groupRef": {}}, "spec.groupRef.name: Required value"),
    "an unknown field": ({"group": "flights"}, 'unknown field "spec.group"'),
}


def test_missing_fields_get_their_defaults(api_server: ApiServer) -> None:
    assert check(api_server, audit())["spec"] == DEFAULTS


@pytest.mark.parametrize(("spec", "answer"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_spec_is_refused_with_the_reason(
    api_server: ApiServer, spec: Object, answer: str
) -> None:
    with pytest.raises(RefusedError, match=re.escape(answer)):
        check(api_server, audit(**spec))


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("a" * 53, "the name must not exceed 52 characters"),
        ("1-audit", "the name becomes part of the Job's name"),
    ],
)
def test_an_invalid_job_name_is_refused(api_server: ApiServer, name: str, answer: str) -> None:
    with pytest.raises(RefusedError, match=answer):
        check(api_server, audit(name))


@pytest.mark.parametrize(
    "change", [{"groupRef": {"name": "trains"}}, {"ttlAfterFinished": "1h"}, {"resources": None}]
)
def test_the_spec_of_an_audit_is_immutable(api_server: ApiServer, change: Object) -> None:
    sent = audit(resources={"requests": {"cpu": "2"}})

    with (
        stored(api_server, sent) as made,
        pytest.raises(RefusedError, match="the spec of an audit cannot change; create another"),
    ):
        check_change(api_server, made, {"spec": change})


def test_the_same_audit_may_be_applied_again(api_server: ApiServer) -> None:
    with stored(api_server, audit()) as made:
        assert check_change(api_server, made, {"spec": DEFAULTS})["spec"] == made["spec"]


def with_status(server: ApiServer, made: Object) -> Object:
    kept: Object = server.request(
        "PATCH",
        f"{path(made)}/status?fieldValidation=Strict",
        {"status": STATUS},
        content_type=MERGE_PATCH,
    )
    return kept


def test_a_complete_status_is_stored_as_it_was_written(api_server: ApiServer) -> None:
    with stored(api_server, audit()) as made:
        assert with_status(api_server, made)["status"] == STATUS


def test_the_table_shows_group_phase_verdict_entries_and_findings(api_server: ApiServer) -> None:
    with stored(api_server, audit()) as made:
        with_status(api_server, made)
        name = made["metadata"]["name"]
        header, row = api_server.kubectl("get", "dla", name).splitlines()

    assert header.split() == ["NAME", "GROUP", "PHASE", "VERDICT", "ENTRIES", "FINDINGS", "AGE"]
    assert row.split()[:-1] == [name, "flights", "Finished", "Damaged", "336776", "1"]
