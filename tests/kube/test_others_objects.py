"""What the operator does about objects that are not its own, on a real API server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api_server.client import ApiServer
from api_server.objects import Object
from dledger_kube.cluster import API, Namespace
from dledger_kube.objects import IMAGES, NOW
from dledger_kube.operated import Operated, operated
from dledger_operator import names
from dledger_operator.behaviors.children.planned import NO_VERSION
from dledger_operator.behaviors.children.reconcile import reconcile
from dledger_operator.clients.errors import ConflictError
from dledger_operator.clients.kubernetes import KubeApi

pytest_plugins = ["api_server.fixtures", "dledger_kube.fixtures"]

APPS = "/apis/apps/v1"
POLICY = "/apis/policy/v1"
TOLD_S_MAX = 5.0
"""How soon `Ready` says why a group does not begin."""

SERVICE = {"selector": {"app": "shop"}, "ports": [{"port": 80}]}
BUDGET = {"minAvailable": 1, "selector": {"matchLabels": {"app": "shop"}}}
STATEFUL_SET = {
    "serviceName": "shop",
    "selector": {"matchLabels": {"app": "shop"}},
    "template": {
        "metadata": {"labels": {"app": "shop"}},
        "spec": {"containers": [{"name": "shop", "image": "shop:1"}]},
    },
}


def others(api_version: str, kind: str, name: str, **content: object) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **content}


OTHERS = [
    ("/api/v1", "services", others("v1", "Service", "flights-master", spec=SERVICE)),
    ("/api/v1", "services", others("v1", "Service", "flights-slave", spec=SERVICE)),
    ("/api/v1", "services", others("v1", "Service", "flights-nodes", spec=SERVICE)),
    ("/api/v1", "configmaps", others("v1", "ConfigMap", "flights-settings", data={"a": "b"})),
    ("/api/v1", "serviceaccounts", others("v1", "ServiceAccount", "flights-node")),
    (
        POLICY,
        "poddisruptionbudgets",
        others("policy/v1", "PodDisruptionBudget", "flights", spec=BUDGET),
    ),
    (APPS, "statefulsets", others("apps/v1", "StatefulSet", "flights", spec=STATEFUL_SET)),
]


@pytest.fixture
async def cluster(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Operated]:
    async with operated(api_server, tmp_path, members=3) as parts:
        yield Operated(*parts)


def unchanged(before: Object, after: Object) -> bool:
    """Whether an object is the same, its version included."""
    return before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


async def begun(api: KubeApi, body: Object) -> str:
    """Reconcile a new group and return the reason of its problem; empty without one."""
    outcome = await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)
    return outcome.problem.reason if outcome.problem else ""


@pytest.mark.parametrize(
    ("group", "kind", "sent"), OTHERS, ids=lambda value: value if isinstance(value, str) else ""
)
async def test_somebody_elses_object_with_the_name_of_a_child_is_left_alone(
    api: KubeApi, namespace: Namespace, group: str, kind: str, sent: Object
) -> None:
    made = namespace.server.request("POST", namespace.path(kind, group=group), sent)

    reason = await begun(api, namespace.make_group())

    assert reason == "NameTaken"
    assert unchanged(made, namespace.get(kind, sent["metadata"]["name"], group))


async def test_the_object_of_another_group_is_left_alone(
    api: KubeApi, namespace: Namespace
) -> None:
    body = namespace.make_group()
    assert await begun(api, body) == ""
    before = namespace.get("services", "flights-master")
    owner = before["metadata"]["ownerReferences"][0] | {"name": "trains", "uid": "another"}
    namespace.patch("services", "flights-master", {"metadata": {"ownerReferences": [owner]}})

    assert await begun(api, body) == "NameTaken"

    assert namespace.get("services", "flights-master")["metadata"]["ownerReferences"] == [owner]


async def test_a_group_adopts_what_an_orphaning_deletion_left(
    api: KubeApi, namespace: Namespace
) -> None:
    assert await begun(api, namespace.make_group()) == ""
    namespace.server.request("DELETE", namespace.path("dledgergroups", "flights", API))
    body = namespace.make_group()
    assert await begun(api, body) == "WaitingForRemains"
    for group, kind, sent in OTHERS:  # as the garbage collector does for --cascade=orphan
        change = {"metadata": {"ownerReferences": None}}
        namespace.patch(kind, sent["metadata"]["name"], change, group)

    assert await begun(api, body) == ""

    adopted = namespace.get("statefulsets", "flights", APPS)["metadata"]["ownerReferences"]
    assert [each["uid"] for each in adopted] == [body["metadata"]["uid"]]


async def test_an_apply_of_a_new_child_never_changes_an_object_that_came_in_between(
    api: KubeApi, namespace: Namespace
) -> None:
    data = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}
    metadata: dict[str, Any] = {"namespace": namespace.name, "name": "settings"}

    await api.apply({**data, "metadata": metadata | {"resourceVersion": NO_VERSION}})
    made = namespace.get("configmaps", "settings")
    for pin in ({"resourceVersion": NO_VERSION}, {"uid": "another"}):
        with pytest.raises(ConflictError):
            await api.apply({**data, "data": {"b": "2"}, "metadata": metadata | pin})
    await api.apply({**data, "metadata": metadata | {"uid": made["metadata"]["uid"]}})

    assert unchanged(made, namespace.get("configmaps", "settings"))


async def test_the_status_of_a_deleted_group_is_not_written_to_its_successor(
    api: KubeApi, namespace: Namespace
) -> None:
    former = namespace.make_group()
    namespace.server.request("DELETE", namespace.path("dledgergroups", "flights", API))
    namespace.make_group()

    with pytest.raises(ConflictError):
        await api.apply_status(names.GROUP_KIND, former, {"observedGeneration": 1})

    assert "status" not in namespace.get("dledgergroups", "flights", API)


async def test_a_new_group_says_which_name_is_taken_and_begins_when_it_is_free(
    cluster: Operated,
) -> None:
    group, kind, sent = OTHERS[0]
    path = cluster.namespace.path(kind, group=group)
    cluster.namespace.server.request("POST", path, sent)

    cluster.namespace.make_group()

    await cluster.until(
        "the group says that a name is taken",
        lambda: cluster.condition("Ready")["reason"] == "NameTaken",
        within_s=TOLD_S_MAX,
    )
    assert "Service flights-master" in cluster.condition("Ready")["message"]
    cluster.namespace.server.request("DELETE", f"{path}/flights-master")
    await cluster.until(
        "the group begins",
        lambda: len(cluster.namespace.get("statefulsets", group=APPS)["items"]) == 1,
    )


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("create Pod flights-0", "exceeded quota: team, requested: pods=1"),
        ("create Claim data-flights-0 for Pod flights-0", "exceeded quota: team"),
        ("create Pod flights-0", "no PriorityClass with name gold was found"),
        ("create Pod flights-0", 'violates PodSecurity "restricted:latest"'),
    ],
)
async def test_ready_says_why_no_pod_is_created(cluster: Operated, what: str, error: str) -> None:
    cluster.namespace.make_group()
    await cluster.until(
        "the StatefulSet exists",
        lambda: len(cluster.namespace.get("statefulsets", group=APPS)["items"]) == 1,
    )
    made = cluster.namespace.get("statefulsets", "flights", APPS)["metadata"]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "flights.1"},
        "involvedObject": {"kind": "StatefulSet", "name": "flights", "uid": made["uid"],
                           "namespace": cluster.namespace.name, "apiVersion": "apps/v1"},
        "type": "Warning",
        "reason": "FailedCreate",
        "message": f"{what} in StatefulSet flights failed error: {error}",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip

    cluster.namespace.server.request("POST", cluster.namespace.path("events"), event)

    await cluster.until(
        "the cause is in Ready", lambda: error in cluster.condition("Ready")["message"],
        within_s=TOLD_S_MAX,
    )  # fmt: skip
    assert cluster.condition("Ready")["reason"] == "FailedCreate"
