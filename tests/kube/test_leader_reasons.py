"""Reasons and times of leader changes: what the new leader tells reaches status and metrics.

The operator is a process of its own, and the API server is real; members are faked over HTTP.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api_server.client import ApiServer
from dledger_kube.faulty_proxy import FaultyProxy
from dledger_kube.operated import operated
from dledger_kube.played import Cluster, led_by

pytest_plugins = ["api_server.fixtures", "dledger_kube.behind_proxy"]

AWAY_S = 3.0
"""How long the API server or the operator is away: the input of two tests."""
TOLD = {"former_leader_id": "n1", "silent_ms": 1200, "election_ms": 300, "leading_ms": 0}


@pytest.fixture
async def cluster(
    api_server: ApiServer, proxy: FaultyProxy, tmp_path: Path
) -> AsyncIterator[Cluster]:
    """A group that n1 leads in term 7."""
    async with operated(api_server, tmp_path, members=3, through=proxy) as parts:
        cluster = Cluster(*parts)
        await cluster.create_group()
        await cluster.elect(1, 7)
        await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))
        await cluster.until(
            "the status names n1's term", lambda: cluster.last_change().get("term") == 7
        )
        yield cluster


async def n2_wins(cluster: Cluster, because: str) -> None:
    """Let n2 lead term 8 and tell why."""
    await cluster.nodes[2].say(8, "n2", stood_because=because, **TOLD)
    for ordinal in (0, 1):
        await cluster.nodes[ordinal].say(8, "n2")


async def relabeled(cluster: Cluster) -> None:
    await cluster.until("n2 is labeled", lambda: cluster.roles() == led_by(2))
    await cluster.until(
        "it was timed",
        lambda: cluster.last_change()["term"] == 8 and "relabelSeconds" in cluster.last_change(),
    )


async def test_a_planned_transfer_is_called_one(cluster: Cluster) -> None:
    await n2_wins(cluster, "TRANSFER")
    await relabeled(cluster)

    change = cluster.last_change()
    assert change["reason"] == "LeadershipTransferred"
    assert (change["detectSeconds"], change["electSeconds"]) == (0, 0.3)
    metrics = await asyncio.to_thread(cluster.operator.metrics)
    assert 'reason="LeadershipTransferred"} 1.0' in metrics


async def test_the_time_without_an_api_server_is_no_election(
    cluster: Cluster, proxy: FaultyProxy
) -> None:
    await proxy.refuse_with(503)
    await n2_wins(cluster, "NO_HEARTBEAT")
    await asyncio.sleep(AWAY_S)
    proxy.pass_on()
    await relabeled(cluster)

    change = cluster.last_change()
    assert (change["reason"], change["detectSeconds"]) == ("LeaderLost", 1.2)
    assert change["electSeconds"] == 0.3
    assert change["relabelSeconds"] >= AWAY_S


async def test_a_change_while_the_operator_was_away_has_its_reason_and_times(
    cluster: Cluster,
) -> None:
    cluster.operator.kill()
    await n2_wins(cluster, "LEADER_LINK_LOST")
    await cluster.nodes[2].say(
        8, "n2", stood_because="LEADER_LINK_LOST", **TOLD | {"leading_ms": 9000}
    )
    cluster.operator.start()
    await relabeled(cluster)

    change = cluster.last_change()
    assert (change["from"], change["reason"]) == ("n1", "LeaderLost")
    assert (change["detectSeconds"], change["electSeconds"]) == (1.2, 0.3)
    assert change["relabelSeconds"] >= 9.0, "the Service was wrong for that long"
