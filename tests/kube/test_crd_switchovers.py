"""The CRD of DLedgerSwitchover on a real API server: validation, storage and printed columns."""

import re
from pathlib import Path

import pytest
import yaml

from api_server.client import ApiServer, RefusedError
from api_server.objects import MERGE_PATCH, Object, check, check_change, path, stored, switchover

pytest_plugins = ["api_server.fixtures"]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flights-switchover.yaml"

DEFAULTS = {
    "groupRef": {"name": "flights"},
    "target": "n2",
    "maxLagEntries": 1000,
    "timeout": "30s",
    "ttlAfterFinished": "24h",
}

STATUS = {
    "observedGeneration": 1,
    "phase": "Succeeded",
    "from": "n1",
    "term": 8,
    "startedAt": "2026-01-01T00:00:00Z",
    "finishedAt": "2026-01-01T00:00:01Z",
    "checkSeconds": 0.021,
    "transferSeconds": 0.012,
    "serviceSeconds": 0.105,
    "conditions": [
        {
            "type": "Complete",
            "status": "True",
            "reason": "SwitchedOver",
            "message": "the leadership moved from n1 to n2",
            "lastTransitionTime": "2026-01-01T00:00:01Z",
            "observedGeneration": 1,
        }
    ],
}

REFUSED: dict[str, tuple[Object, str]] = {
    "no group": ({"groupRef": {}}, "spec.groupRef.name: Required value"),
    "no target": ({"target": None}, "spec.target: Required value"),
    "a target that no group has": ({"target": "n7"}, "spec.target in body should match"),
    "a lag that the leader refuses": (
        {"maxLagEntries": 1001},
        "spec.maxLagEntries in body should be less than or equal to 1000",
    ),
    "a negative lag": (
        {"maxLagEntries": -1},
        "spec.maxLagEntries in body should be greater than or equal to 0",
    ),
    "too little time": ({"timeout": "4s"}, "timeout must be between 5s and 10m, but is 4s"),
    "too much time": ({"timeout": "601s"}, "timeout must be between 5s and 10m, but is 601s"),
    "a time too short to read the result": (
        {"ttlAfterFinished": "59s"},
        "ttlAfterFinished must be at least 1m, so that its result can be read, and at most 720h",
    ),
    "a result kept too long": ({"ttlAfterFinished": "721h"}, "but is 721h"),
    "an unknown field": ({"to": "n2"}, 'unknown field "spec.to"'),
}


def test_missing_fields_get_their_defaults(api_server: ApiServer) -> None:
    assert check(api_server, switchover())["spec"] == DEFAULTS


def test_the_example_is_accepted(api_server: ApiServer) -> None:
    sent = yaml.safe_load(EXAMPLE.read_text())
    sent["metadata"]["namespace"] = "default"

    assert check(api_server, sent)["spec"] == DEFAULTS


@pytest.mark.parametrize(("spec", "answer"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_spec_is_refused_with_the_reason(
    api_server: ApiServer, spec: Object, answer: str
) -> None:
    with pytest.raises(RefusedError, match=re.escape(answer)):
        check(api_server, switchover(**spec))


@pytest.mark.parametrize("change", [{"target": "n1"}, {"timeout": "1m"}, {"maxLagEntries": 5}])
def test_the_spec_of_a_switchover_is_immutable(api_server: ApiServer, change: Object) -> None:
    with (
        stored(api_server, switchover()) as made,
        pytest.raises(RefusedError, match="the spec of a switchover cannot change; create another"),
    ):
        check_change(api_server, made, {"spec": change})


def test_the_same_switchover_may_be_applied_again(api_server: ApiServer) -> None:
    with stored(api_server, switchover()) as made:
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
    with stored(api_server, switchover()) as made:
        assert with_status(api_server, made)["status"] == STATUS


def test_the_table_shows_group_target_phase_reason_and_the_former_leader(
    api_server: ApiServer,
) -> None:
    with stored(api_server, switchover()) as made:
        with_status(api_server, made)
        name = made["metadata"]["name"]
        header, row = api_server.kubectl("get", "dls", name).splitlines()

    assert header.split() == ["NAME", "GROUP", "TARGET", "PHASE", "REASON", "FROM", "AGE"]
    assert row.split()[:-1] == [name, "flights", "n2", "Succeeded", "SwitchedOver", "n1"]
