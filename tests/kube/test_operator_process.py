"""The operator as deployed: a process of its own, only the chart's role, and a real API server.

The test plays the controllers and kubelets; fake members answer over HTTP on loopback.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api_server.client import ApiServer
from dledger_kube.cluster import API
from dledger_kube.operated import operated
from dledger_kube.operator_process import OperatorProcess
from dledger_kube.played import Cluster, led_by

pytest_plugins = ["api_server.fixtures"]


@pytest.fixture
async def cluster(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with operated(api_server, tmp_path, members=3) as parts:
        yield Cluster(*parts)


async def test_a_group_is_created_fails_over_and_is_deleted(cluster: Cluster) -> None:
    await cluster.create_group()
    await cluster.elect(1, 7)
    await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))
    await cluster.until(
        "the missing endpoint is reported",
        lambda: cluster.condition("EndpointsSynced")["status"] == "False",
    )
    cluster.point_master_service_to("flights-1")
    await cluster.until(
        "the group is ready", lambda: cluster.condition("Ready")["reason"] == "LeaderElected"
    )
    assert cluster.status()["leader"]["pod"] == "flights-1"
    await cluster.until("all members are ready", lambda: cluster.status()["membersReady"] == "3/3")

    await cluster.nodes[1].fall_silent()
    for ordinal in (0, 2):
        await cluster.nodes[ordinal].say(8, "n2")
    lost = led_by(2) | {"flights-1": "none"}
    await cluster.until("n2 is labeled", lambda: cluster.roles() == lost)
    cluster.point_master_service_to("flights-2")
    await cluster.until(
        "the failover is timed",
        lambda: (
            {"to": "n2"}.items() <= cluster.last_change().items()
            and "endpointsSeconds" in cluster.last_change()
        ),
    )

    change = cluster.last_change()
    assert (change["from"], change["term"], change["reason"]) == ("n1", 8, "LeaderLost")
    metrics = (await asyncio.to_thread(cluster.operator.metrics)).splitlines()
    here = f'group="flights",namespace="{cluster.namespace.name}"'
    assert f'dledger_failover_seconds_count{{{here},phase="total"}} 1.0' in metrics
    (doubles,) = [
        line for line in metrics if line.startswith("dledger_double_master_observed_total{")
    ]
    assert doubles.endswith(" 0.0")
    assert (
        await asyncio.to_thread(cluster.operator.health)
        == '{"workers": {"groups": 1, "audits": 0, "switchovers": 0, "replacements": 0}}'
    )

    path = cluster.namespace.path("dledgergroups", "flights", API)
    await asyncio.to_thread(cluster.namespace.server.request, "DELETE", path)
    await cluster.until(
        "its series are removed", lambda: "flights" not in cluster.operator.metrics()
    )

    assert await asyncio.to_thread(cluster.operator.stop) == 0
    assert "Traceback" not in cluster.operator.log()
    assert "forbidden" not in cluster.operator.log().lower(), "the chart's role suffices"


async def test_a_restarted_operator_catches_up_with_a_failover(cluster: Cluster) -> None:
    await cluster.create_group()
    await cluster.elect(1, 7)
    await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))

    await cluster.until(
        "the status names n1's term", lambda: cluster.last_change().get("term") == 7
    )
    cluster.operator.kill()
    await cluster.elect(0, 9)
    cluster.operator.start()

    await cluster.until("n0 is labeled", lambda: cluster.roles() == led_by(0))
    await cluster.until(
        "the status has the change",
        lambda: cluster.last_change()["reason"] == "FoundAtStart",
    )


async def test_a_lost_majority_is_told_once_although_the_operator_is_killed_meanwhile(
    cluster: Cluster,
) -> None:
    def told() -> dict[str, int]:
        found = cluster.namespace.get("events")["items"]
        return {each["reason"]: each["count"] for each in found if "Quorum" in each["reason"]}

    def loss() -> dict[str, object]:
        return dict(cluster.status().get("quorumLoss") or {})

    await cluster.create_group()
    await cluster.elect(1, 7)
    await cluster.until("all are ready", lambda: cluster.status().get("membersReady") == "3/3")
    await cluster.nodes[0].fall_silent()
    await cluster.nodes[2].fall_silent()
    await cluster.until("the status has the loss", lambda: bool(loss()))
    cluster.operator.kill()
    since = loss()["since"]

    cluster.operator.start()
    await cluster.until("the loss is told", lambda: told() == {"QuorumLost": 1})
    assert loss() == {"since": since, "reported": True}
    cluster.operator.kill()
    for ordinal in (0, 2):
        await cluster.nodes[ordinal].answer()
    cluster.operator.start()

    await cluster.until("its end is told", lambda: told() == {"QuorumLost": 1, "QuorumRestored": 1})
    assert loss() == {}


async def test_a_deleted_child_is_recreated(cluster: Cluster) -> None:
    await cluster.create_group()
    await cluster.until("the Service exists", lambda: cluster.has("services", "flights-master"))
    deleted = cluster.service_uid("flights-master")

    path = cluster.namespace.path("services", "flights-master")
    await asyncio.to_thread(cluster.namespace.server.request, "DELETE", path)

    await cluster.until(
        "another Service exists", lambda: cluster.service_uid("flights-master") not in ("", deleted)
    )


async def test_the_leader_is_followed_while_a_child_is_refused(
    cluster: Cluster,
) -> None:
    await cluster.create_group()
    await cluster.elect(1, 7)
    await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))
    # The schema accepts this port; the API server refuses a second Service that has it.
    port = {"name": "taken", "port": 80}
    other = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "other"},
        "spec": {"type": "NodePort", "ports": [port]},
    }
    made = cluster.namespace.server.request("POST", cluster.namespace.path("services"), other)
    taken = {"type": "NodePort", "nodePort": made["spec"]["ports"][0]["nodePort"]}
    wrong = {"spec": {"services": {"master": taken}}}

    cluster.namespace.patch("dledgergroups", "flights", wrong, API)
    await cluster.until(
        "the refusal is reported", lambda: cluster.condition("Ready")["reason"] == "ChildRefused"
    )
    await cluster.elect(2, 8)

    await cluster.until("n2 is labeled", lambda: cluster.roles() == led_by(2))


async def test_a_paused_group_is_not_changed_but_its_leader_is_followed(cluster: Cluster) -> None:
    await cluster.create_group()
    await cluster.until("the Service exists", lambda: cluster.has("services", "flights-master"))
    cluster.namespace.patch("dledgergroups", "flights", {"spec": {"paused": True}}, API)
    await cluster.until(
        "the group is paused", lambda: cluster.condition("Paused")["status"] == "True"
    )

    change: dict[str, Any] = {"spec": {"podAnnotations": {"note": "new"}}}
    cluster.namespace.patch("dledgergroups", "flights", change, API)
    await cluster.elect(1, 7)
    await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))
    await cluster.until(
        "the change is observed", lambda: cluster.status()["observedGeneration"] == 3
    )

    template = cluster.namespace.get("statefulsets", "flights", "/apis/apps/v1")["spec"]["template"]
    assert "note" not in template["metadata"]["annotations"]


async def test_an_audit_waits_for_its_group_and_then_starts(cluster: Cluster) -> None:
    sent = {
        "apiVersion": "dledger.io/v1alpha1",
        "kind": "DLedgerAudit",
        "metadata": {"name": "monthly"},
        "spec": {"groupRef": {"name": "flights"}},
    }
    path = cluster.namespace.path("dledgeraudits", group=API)
    await asyncio.to_thread(cluster.namespace.server.request, "POST", path, sent)

    def reason() -> str:
        status = cluster.namespace.get("dledgeraudits", "monthly", API).get("status", {})
        return str(status.get("conditions", [{}])[0].get("reason"))

    await cluster.until("the audit waits", lambda: reason() == "GroupNotFound")
    await cluster.create_group()
    await cluster.until("the audit starts", lambda: reason() == "JobCreated")

    job = cluster.namespace.get("jobs", "monthly-audit", "/apis/batch/v1")
    assert job["metadata"]["ownerReferences"][0]["kind"] == "DLedgerAudit"


async def test_the_operator_exits_with_a_reason_if_the_crds_are_missing(
    empty_api_server: ApiServer, tmp_path: Path
) -> None:
    with OperatorProcess(empty_api_server.kubeconfig, "", tmp_path) as operator:
        code = await asyncio.to_thread(operator.wait)

    assert code == 1
    assert "install the chart's CRDs first" in operator.log()
