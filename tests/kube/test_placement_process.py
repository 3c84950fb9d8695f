"""The leadership moves to the preferred leader and off nodes that are being drained.

The operator is a process as deployed, with the chart's role and a real API server with Nodes.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api_server.client import ApiServer
from dledger_kube.led import Led, led_group
from dledger_kube.played import led_by

pytest_plugins = ["api_server.fixtures"]


@pytest.fixture
async def led(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Led]:
    async with led_group(api_server, tmp_path) as made:
        yield made


def placed(led: Led) -> tuple[str, str]:
    condition = led.condition("LeaderPlaced")
    return condition["status"], condition["reason"]


def moved_since(led: Led, reason: str) -> bool:
    """Return whether an Event names why a node is being emptied. Events come a little late."""
    return any(
        each["reason"] == "LeadershipMoved"
        and f"which is being emptied: {reason}" in each["message"]
        for each in led.namespace.get("events")["items"]
    )


async def test_a_cordon_moves_the_leadership_once_and_the_group_says_so(led: Led) -> None:
    led.make_nodes()
    await led.until("nothing is to do", lambda: placed(led) == ("True", "NoPreference"))

    led.change_node(1, unschedulable=True)
    await led.until("n0 is labeled", lambda: led.roles() == led_by(0))
    led.change_node(1, unschedulable=None)
    led.change_node(2, unschedulable=True)
    led.change_node(0, taints=[{"key": "ToBeDeleted", "effect": "NoSchedule"}])
    await led.until("n1 is labeled", lambda: led.roles() == led_by(1))
    await led.until("nothing is to do", lambda: placed(led) == ("True", "NoPreference"))

    assert led.members.transfers == [("n1", "n0"), ("n0", "n1")]
    await led.until("an Event tells of the cordon", lambda: moved_since(led, "it is cordoned"))
    await led.until(
        "an Event tells of the taint",
        lambda: moved_since(led, "it has the taint ToBeDeleted:NoSchedule"),
    )
    metrics = await asyncio.to_thread(led.operator.metrics)
    assert 'dledger_handovers_total{reason="NodeEmptied"} 2.0' in metrics
    assert "forbidden" not in led.operator.log().lower(), "the chart's role suffices"
    assert "Traceback" not in led.operator.log()


async def test_a_leader_stays_if_every_node_is_cordoned(led: Led) -> None:
    led.make_nodes()
    for ordinal in (0, 2, 1):
        led.change_node(ordinal, unschedulable=True)

    await led.until("it says why", lambda: placed(led) == ("False", "NoSuccessor"))

    assert led.members.transfers == []


async def test_the_preferred_member_gets_the_leadership_once_it_is_steady(led: Led) -> None:
    led.make_nodes()
    led.change(preferredLeader={"member": "n0", "stableFor": "2s"})

    await led.until("it waits", lambda: placed(led) == ("False", "Settling"))
    await led.until("n0 is labeled", lambda: led.roles() == led_by(0))
    await led.until("it is placed", lambda: placed(led) == ("True", "Preferred"))

    assert led.members.transfers == [("n1", "n0")]


async def test_a_preferred_leader_that_loses_an_election_settles_before_it_leads_again(
    led: Led,
) -> None:
    led.make_nodes()
    led.change(preferredLeader={"member": "n0", "stableFor": "3s"})
    await led.until("n0 leads", lambda: placed(led) == ("True", "Preferred"))

    await led.members.elect("n2", led.members.term + 1)

    await led.until("n0 settles", lambda: placed(led) == ("False", "Settling"))
    assert led.members.transfers == [("n1", "n0")]
    await led.until("n0 leads again", lambda: placed(led) == ("True", "Preferred"))
    assert led.members.transfers == [("n1", "n0"), ("n2", "n0")]


async def test_a_drain_of_the_preferred_node_and_its_end_move_the_leadership_there_and_back(
    led: Led,
) -> None:
    led.make_nodes()
    led.change(preferredLeader={"nodeLabels": {"ordinal": "1"}, "stableFor": "1s"})
    await led.until("it is placed", lambda: placed(led) == ("True", "Preferred"))

    led.change_node(1, unschedulable=True)
    await led.until("it says why", lambda: placed(led) == ("False", "PreferredUnable"))
    led.operator.kill()
    led.operator.start()
    led.change_node(1, unschedulable=None)
    await led.until("it is placed again", lambda: placed(led) == ("True", "Preferred"))

    assert led.members.transfers == [("n1", "n0"), ("n0", "n1")]


async def test_an_operator_without_the_permission_for_nodes_says_so(
    led: Led, api_server: ApiServer
) -> None:
    roles = api_server.kubectl("get", "clusterroles", "--output=name").split()
    (own,) = [each for each in roles if f"/{led.namespace.name}:" in each]
    api_server.kubectl("delete", own)
    led.operator.kill()
    led.operator.start()
    led.change(preferredLeader={"zone": "a"})

    await led.until("it says why", lambda: placed(led) == ("False", "NodesUnknown"))

    assert "this account may not list Nodes" in led.operator.log()
