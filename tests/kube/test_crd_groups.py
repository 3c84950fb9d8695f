"""The CRD of DLedgerGroup on a real API server: defaults, status, columns and scale."""

from pathlib import Path

import pytest
import yaml

from api_server.client import ApiServer, CommandError, wait_until
from api_server.objects import MERGE_PATCH, Object, check, group, path, stored

pytest_plugins = ["api_server.fixtures"]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

DEFAULTS = {
    "replicas": 3,
    "image": {},
    "storage": {"size": "3Gi", "retain": {"whenDeleted": "Retain", "whenScaled": "Retain"}},
    "log": {"flushDiskType": "SyncFlush", "segmentSize": "1Gi"},
    "election": {"heartbeatInterval": "250ms", "timeout": "1s"},
    "roles": {"label": "dledger.io/role", "master": "master", "slave": "slave"},
    "services": {"master": {"type": "ClusterIP"}, "slave": {"type": "ClusterIP"}},
    "resources": {
        "requests": {"cpu": "250m", "memory": "256Mi"},
        "limits": {"memory": "512Mi"},
    },
    "scheduling": {"topologySpread": "Soft", "zoneSpread": "Soft"},
    "podSecurity": {"user": "Fixed"},
    "stateMachine": {"type": "None"},
    "updatePolicy": "Automatic",
    "adminToken": {"required": True, "rotateAfterDays": 30},
    "networkPolicy": {"enabled": True, "clients": "Namespace"},
    "hibernate": False,
    "paused": False,
}

STATUS = {
    "observedGeneration": 1,
    "leader": {
        "member": "n1",
        "pod": "flights-1",
        "address": "flights-1.flights-nodes:40911",
        "term": 7,
        "since": "2026-01-01T00:00:00Z",
    },
    "replicas": 3,
    "readyReplicas": 3,
    "membersReady": "3/3",
    "selector": "dledger.io/group=flights",
    "toleratedFailures": 1,
    "members": [
        {
            "id": "n1",
            "pod": "flights-1",
            "role": "master",
            "brokerId": 0,
            "ready": True,
            "joining": True,
            "joinedIndex": 4711,
            "term": 7,
            "flushDiskType": "SyncFlush",
        }
    ],
    "broker": {
        "name": "flights",
        "address": "flights-broker.default.svc:9876",
        "servingMembers": 2,
        "topics": 12,
        "consumerGroups": 3,
        "unbuiltEntries": 700,
        "advertised": ["10.96.0.7:10911"],
        "nameServers": [
            {
                "address": "namesrv.example:9876",
                "registered": ["n0"],
                "missing": ["n1"],
                "message": "it answers 1: no",
            }
        ],
    },
    "leaderChanges": [
        {
            "from": "n0",
            "to": "n1",
            "term": 7,
            "reason": "LeaderLost",
            "at": "2026-01-01T00:00:00Z",
            "detectSeconds": 0.12,
            "electSeconds": 0.31,
            "relabelSeconds": 0.05,
            "endpointsSeconds": 0.06,
            "firstWriteSeconds": 0.7,
        }
    ],
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "LeaderElected",
            "message": "n1 leads term 7; 3 of 3 members ready",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
    ],
}


def test_missing_fields_get_their_defaults(api_server: ApiServer) -> None:
    assert check(api_server, group(storage={"size": "3Gi"}))["spec"] == DEFAULTS


def test_a_partly_given_object_gets_defaults_for_the_rest(api_server: ApiServer) -> None:
    spec = check(api_server, group(election={"timeout": "2s"}, roles={"master": "primary"}))["spec"]

    assert spec["election"] == {"heartbeatInterval": "250ms", "timeout": "2s"}
    assert spec["roles"] == {"label": "dledger.io/role", "master": "primary", "slave": "slave"}


def test_given_resources_replace_the_default_entirely(api_server: ApiServer) -> None:
    resources = {"requests": {"memory": "1Gi"}}

    assert check(api_server, group(resources=resources))["spec"]["resources"] == resources


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_an_example_is_accepted(api_server: ApiServer, example: Path) -> None:
    sent = yaml.safe_load(example.read_text())
    sent["metadata"]["namespace"] = "default"

    assert check(api_server, sent)["metadata"]["name"] == sent["metadata"]["name"]


def with_status(server: ApiServer, made: Object) -> Object:
    stored_now: Object = server.request(
        "PATCH",
        f"{path(made)}/status?fieldValidation=Strict",
        {"status": STATUS},
        content_type=MERGE_PATCH,
    )
    return stored_now


def test_a_complete_status_is_stored_as_it_was_written(api_server: ApiServer) -> None:
    with stored(api_server, group()) as made:
        assert with_status(api_server, made)["status"] == STATUS


@pytest.mark.parametrize(
    "repository", ["registry.example:5000/team/dledger-node:1.2", "dledger-node:1.2"]
)
def test_the_status_of_a_group_with_a_tag_beside_a_digest_can_be_written(
    api_server: ApiServer, repository: str
) -> None:
    """Such a group was valid once, and an API server validates the whole object at each write."""
    image = {"repository": repository, "digest": f"sha256:{'0' * 64}"}

    with stored(api_server, group(image=image)) as made:
        assert with_status(api_server, made)["status"] == STATUS


def test_the_table_shows_readiness_leader_term_and_members(api_server: ApiServer) -> None:
    with stored(api_server, group()) as made:
        with_status(api_server, made)
        name = made["metadata"]["name"]
        header, row = api_server.kubectl("get", "dlg", name).splitlines()

    assert header.split() == ["NAME", "READY", "LEADER", "TERM", "MEMBERS", "AGE"]
    assert row.split()[:-1] == [name, "True", "flights-1", "7", "3/3"]


def test_a_group_is_found_by_its_category(api_server: ApiServer) -> None:
    with stored(api_server, group()) as made:
        listed = api_server.kubectl("get", "dledger", "--output=name").split()

    assert f"dledgergroup.dledger.io/{made['metadata']['name']}" in listed


def test_the_scale_subresource_shows_members_and_selector(api_server: ApiServer) -> None:
    with stored(api_server, group()) as made:
        with_status(api_server, made)
        scale = api_server.request("GET", f"{path(made)}/scale")

    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 3, "selector": "dledger.io/group=flights"}


def test_kubectl_scale_changes_spec_replicas(api_server: ApiServer) -> None:
    with stored(api_server, group()) as made:
        api_server.kubectl("scale", "dlg", made["metadata"]["name"], "--replicas=5")
        after = api_server.request("GET", path(made))

    assert after["spec"]["replicas"] == 5


def test_kubectl_scale_to_an_even_number_is_refused_with_the_reason(api_server: ApiServer) -> None:
    with (
        stored(api_server, group()) as made,
        pytest.raises(CommandError, match="replicas must be odd"),
    ):
        api_server.kubectl("scale", "dlg", made["metadata"]["name"], "--replicas=4")


def test_kubectl_explain_shows_the_description_of_a_field(api_server: ApiServer) -> None:
    def shown() -> str:
        return " ".join(api_server.kubectl("explain", "dlg.spec.log.flushDiskType").split())

    def is_published() -> bool:
        try:
            return bool(shown())
        except CommandError:
            return False

    # The server publishes the descriptions of a new CRD shortly after it serves its objects.
    wait_until("the descriptions are published", is_published)

    assert "SyncFlush: the entry is on the disks of a majority." in shown()
