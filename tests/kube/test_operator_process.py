"""The operator as deployed: a process of its own, only the chart's role, and a real API server.

The test plays the controllers and kubelets; fake members answer over HTTP on loopback.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api_server.client import ApiServer
from dledger_kube.cluster import API, Object, parsed
from dledger_kube.operated import Operated, operated
from dledger_kube.operator_process import OperatorProcess
from dledger_operator import names

pytest_plugins = ["api_server.fixtures"]

DISCOVERY = "/apis/discovery.k8s.io/v1"


@dataclass(slots=True)
class Cluster(Operated):
    """A namespace with an operator and three fake members."""

    async def elect(self, ordinal: int, term: int) -> None:
        for node in self.nodes:
            await node.say(term, f"n{ordinal}")

    async def create_group(self) -> Object:
        """Create the group, wait for its StatefulSet, and create the pods of the StatefulSet."""
        body = self.namespace.make_group()
        await self.until("the StatefulSet exists", lambda: self.has("statefulsets", "flights"))
        for ordinal, node in enumerate(self.nodes):
            self.namespace.make_pod(parsed(body), ordinal, node.ip)
        return body

    def has(self, kind: str, name: str) -> bool:
        found = self.namespace.get(
            kind, group="/apis/apps/v1" if kind == "statefulsets" else "/api/v1"
        )
        return name in [item["metadata"]["name"] for item in found["items"]]

    def service_uid(self, name: str) -> str:
        """The uid of a Service; empty while it does not exist."""
        services = self.namespace.get("services")["items"]
        uids = {each["metadata"]["name"]: str(each["metadata"]["uid"]) for each in services}
        return uids.get(name, "")

    def roles(self) -> dict[str, str]:
        pods = self.namespace.get("pods")["items"]
        labels = [(pod["metadata"]["name"], pod["metadata"]["labels"]) for pod in pods]
        return {name: each.get(names.ROLE_LABEL, "") for name, each in labels}

    def last_change(self) -> Object:
        changes: list[Object] = self.status().get("leaderChanges") or [{}]
        return changes[0]

    def point_master_service_to(self, pod: str) -> None:
        """Write the EndpointSlice that the controller would write."""
        endpoint = {
            "addresses": ["192.0.2.1"],
            "conditions": {"ready": True},
            "targetRef": {"kind": "Pod", "name": pod},
        }
        labels = {names.GROUP_LABEL: "flights", names.SERVICE_NAME_LABEL: "flights-master"}
        sent = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "flights-master-1", "labels": labels},
            "addressType": "IPv4",
            "endpoints": [endpoint],
        }
        path = self.namespace.path("endpointslices", "flights-master-1", DISCOVERY)
        query = "?fieldManager=controller&force=true"
        self.namespace.server.request(
            "PATCH", path + query, sent, content_type="application/apply-patch+yaml"
        )


@pytest.fixture
async def cluster(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with operated(api_server, tmp_path, members=3) as parts:
        yield Cluster(*parts)


def led_by(ordinal: int) -> dict[str, str]:
    return {f"flights-{k}": "master" if k == ordinal else "slave" for k in range(3)}


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
    assert 'dledger_failover_seconds_count{phase="total"} 1.0' in metrics
    (doubles,) = [
        line for line in metrics if line.startswith("dledger_double_master_observed_total{")
    ]
    assert doubles.endswith(" 0.0")
    assert (
        await asyncio.to_thread(cluster.operator.health)
        == '{"workers": {"groups": 1, "audits": 0}}'
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
    # The schema accepts this annotation; the API server refuses the Service that has it.
    wrong = {"spec": {"services": {"master": {"annotations": {"not a key!": "x"}}}}}

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
