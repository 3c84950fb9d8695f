"""A refused spec beside an operator as deployed: a process and a real API server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api_server.client import ApiServer
from dledger_kube.cluster import Object
from dledger_kube.led import Led, led_group

pytest_plugins = ["api_server.fixtures"]

WRONG = {"containers": [{"name": "side", "image": "side:1", "ports": [{"containerPort": 10911}]}]}
"""A sidecar with the port of a broker: the API server takes it, and the operator refuses it."""


@pytest.fixture
async def led(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Led]:
    async with led_group(api_server, tmp_path, broker={}) as made:
        yield made


def replicas(led: Led) -> int:
    found: Object = led.namespace.get("statefulsets", "flights", "/apis/apps/v1")
    return int(found["spec"]["replicas"])


def reasons(led: Led, *kinds: str) -> list[str]:
    return [str(led.condition(kind)["reason"]) for kind in kinds]


async def refuse_and_restart(led: Led, **spec: object) -> None:
    """Refuse a spec, first by the operator that runs, then by one that has just started."""
    led.change(sidecars=WRONG, **spec)
    await led.until("it is refused", lambda: reasons(led, "Ready") == ["InvalidSpec"])
    led.operator.kill()
    # The new operator has to say it of this generation, not only the one before.
    led.change(podLabels={"restarted": "yes"})
    led.operator.start()
    generation = led.namespace.get("dledgergroups", "flights", "/apis/dledger.io/v1alpha1")[
        "metadata"
    ]["generation"]
    await led.until(
        "it is refused again", lambda: led.status().get("observedGeneration") == generation
    )
    assert reasons(led, "Ready") == ["InvalidSpec"]


async def test_a_group_that_hibernates_sleeps_on_beside_a_refused_spec(led: Led) -> None:
    led.change(hibernate=True)
    await led.until("all pods are to go", lambda: replicas(led) == 0)
    for ordinal, node in enumerate(led.nodes):
        await node.fall_silent()
        led.namespace.delete_pod(f"flights-{ordinal}")
    await led.until("it sleeps", lambda: reasons(led, "Ready") == ["Hibernated"])

    await refuse_and_restart(led, hibernate=False)

    sleeping = ["Hibernated"] * 3
    assert reasons(led, "QuorumHealthy", "Degraded", "Progressing") == sleeping
    assert replicas(led) == 0
    events = {each["reason"] for each in led.namespace.get("events")["items"]}
    assert "QuorumLost" not in events

    led.change(sidecars=None)
    await led.until("it wakes, as the valid spec asks for", lambda: replicas(led) == 3)


async def test_a_preferred_leader_stays_preferred_beside_a_refused_spec(led: Led) -> None:
    led.change(preferredLeader={"member": "n1", "stableFor": "1s"})
    await led.until("n1 is placed", lambda: reasons(led, "LeaderPlaced") == ["Preferred"])

    await refuse_and_restart(led, preferredLeader={"member": "n0"})

    await led.until("n1 is placed still", lambda: reasons(led, "LeaderPlaced") == ["Preferred"])
    assert led.members.transfers == []
