"""How often the operator writes the status of a group, counted on a real API server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api_server.client import ApiServer
from dledger_kube.cluster import API
from dledger_kube.operated import operated
from dledger_kube.played import Cluster, led_by

pytest_plugins = ["api_server.fixtures"]

ASKED = 3
"""Members are asked every 5 s; the status of a busy group was once left alone for 10 s."""


@pytest.fixture
async def cluster(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with operated(api_server, tmp_path, members=3) as parts:
        yield Cluster(*parts)


async def test_a_group_that_appends_gets_no_status_writes(cluster: Cluster) -> None:
    for node in cluster.nodes:
        node.grows_by = 1000
    await cluster.create_group()
    await cluster.elect(1, 7)
    await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))
    cluster.point_master_service_to("flights-1")
    await cluster.until("all members are ready", lambda: cluster.status()["membersReady"] == "3/3")
    await cluster.until(
        "the first leader's labels and endpoints were timed",
        lambda: "endpointsSeconds" in cluster.last_change(),
    )
    await asked(cluster, times=1)
    before = version(cluster)

    await asked(cluster, times=ASKED)

    assert cluster.nodes[0].status.committed_index > ASKED * 1000, "the group did append"
    assert version(cluster) == before, "every write has a version of its own"


async def asked(cluster: Cluster, times: int) -> None:
    """Wait until the operator has asked every member that often for its status."""
    goals = [node.asked + times for node in cluster.nodes]
    await cluster.until(
        f"members were asked {times} times",
        lambda: all(node.asked >= goal for node, goal in zip(cluster.nodes, goals, strict=True)),
    )


def version(cluster: Cluster) -> str:
    metadata = cluster.namespace.get("dledgergroups", "flights", API)["metadata"]
    return str(metadata["resourceVersion"])
