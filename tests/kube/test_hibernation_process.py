"""Hibernation by the operator as deployed: a process, the chart's role and a real API server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api_server.client import ApiServer
from dledger_kube.cluster import Object, parsed
from dledger_kube.led import Led, led_group
from dledger_kube.played import led_by

pytest_plugins = ["api_server.fixtures"]


@pytest.fixture
async def led(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Led]:
    async with led_group(api_server, tmp_path) as made:
        yield made


def replicas(led: Led) -> int:
    found: Object = led.namespace.get("statefulsets", "flights", "/apis/apps/v1")
    return int(found["spec"]["replicas"])


def founding(led: Led) -> str:
    settings: Object = led.namespace.get("configmaps", "flights-settings")["data"]
    return str(settings["DLEDGER_INITIAL_GROUP_STATE"])


def reason(led: Led, kind: str) -> str:
    return str(led.condition(kind)["reason"])


def events(led: Led) -> set[str]:
    """Return the reasons of all Events, which follow the status that they are about."""
    return {str(each["reason"]) for each in led.namespace.get("events")["items"]}


async def end_pods(led: Led) -> None:
    """Do what the StatefulSet controller and the kubelets do."""
    for ordinal, node in enumerate(led.nodes):
        await node.fall_silent()
        await asyncio.to_thread(led.namespace.delete_pod, f"flights-{ordinal}")


async def test_a_group_hibernates_and_wakes_across_crashes_of_the_operator(led: Led) -> None:
    await led.until("the group is founded", lambda: founding(led) == "existing")
    body = led.namespace.get("dledgergroups", "flights", "/apis/dledger.io/v1alpha1")

    led.change(hibernate=True)
    await led.until("all pods are to go", lambda: replicas(led) == 0)
    led.operator.kill()
    await end_pods(led)
    led.operator.start()
    await led.until("it says so", lambda: reason(led, "Ready") == "Hibernated")
    await led.until("nothing is to do", lambda: reason(led, "Progressing") == "Hibernated")
    led.order("to-n2", "n2")
    await led.until("it is refused", lambda: led.outcome("to-n2") == ("Failed", "Hibernated"))
    assert replicas(led) == 0
    assert {each["membership"] for each in led.status()["members"]} == {"Voter"}

    led.operator.kill()
    led.change(hibernate=False)
    led.operator.start()
    await led.until("all pods are to come back", lambda: replicas(led) == 3)
    assert founding(led) == "existing", "no group is founded again"
    for ordinal, node in enumerate(led.nodes):
        await node.answer()
        await asyncio.to_thread(led.namespace.make_pod, parsed(body), ordinal, node.ip)
    await led.members.elect("n0", 8)
    await led.until("n0 is labeled", lambda: led.roles() == led_by(0))
    await led.until("the group is ready", lambda: led.condition("Ready")["status"] == "True")

    assert led.members.changes == [], "no member was added or removed"
    assert "Traceback" not in led.operator.log()
    await led.until("it is told", lambda: "Woken" in events(led))
    assert "QuorumLost" not in events(led)


async def test_a_group_with_a_silent_voter_does_not_hibernate_and_says_why(led: Led) -> None:
    await led.until("the group is founded", lambda: founding(led) == "existing")
    await led.nodes[2].fall_silent()

    led.change(hibernate=True)
    await led.until("it says why", lambda: reason(led, "Progressing") == "MemberSilent")

    assert replicas(led) == 3
