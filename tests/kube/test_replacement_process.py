"""Replacements by the operator as deployed: a process, the chart's role and a real API server.

The test plays the controllers and kubelets; fake members answer on loopback.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from api_server.client import ApiServer, RefusedError
from dledger_kube.cluster import API, MERGE_PATCH, Object, parsed
from dledger_kube.led import Led, led_group

pytest_plugins = ["api_server.fixtures"]

CLAIMS = "persistentvolumeclaims"
KIND = "dledgerreplaces"


@pytest.fixture
async def led(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Led]:
    async with led_group(api_server, tmp_path) as made:
        for ordinal in range(3):
            make_claim(made, ordinal, "old")
        yield made


def make_claim(led: Led, ordinal: int, volume: str) -> None:
    """Create a bound claim, as controllers do."""
    name = f"data-flights-{ordinal}"
    sent = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "labels": {"dledger.io/group": "flights"},
            "finalizers": ["kubernetes.io/pvc-protection"],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "volumeName": f"{led.namespace.name}-{ordinal}-{volume}",
            "resources": {"requests": {"storage": "30Gi"}},
        },
    }
    led.namespace.server.request("POST", led.namespace.path(CLAIMS), sent)
    status = {"status": {"phase": "Bound", "capacity": {"storage": "30Gi"}}}
    path = led.namespace.path(CLAIMS, f"{name}/status")
    led.namespace.server.request("PATCH", path, status, content_type=MERGE_PATCH)


def is_leaving(led: Led, kind: str, name: str) -> bool:
    return "deletionTimestamp" in led.namespace.get(kind, name)["metadata"]


def order(led: Led, member: str, **spec: str) -> None:
    sent = {
        "apiVersion": "dledger.io/v1alpha1",
        "kind": "DLedgerReplace",
        "metadata": {"name": "renew"},
        "spec": {"groupRef": {"name": "flights"}, "member": member, **spec},
    }
    led.namespace.server.request("POST", led.namespace.path(KIND, group=API), sent)


def result(led: Led) -> Object:
    found: Object = led.namespace.get(KIND, "renew", API).get("status", {})
    return found


def reason(led: Led) -> str:
    conditions = result(led).get("conditions") or [{}]
    return str(conditions[0].get("reason", ""))


async def lose(led: Led, ordinal: int) -> None:
    """Let a member fail for good."""
    await led.nodes[ordinal].fall_silent()
    led.members.tell_statuses()
    led.namespace.make_pod_unready(f"flights-{ordinal}")


async def renew(led: Led, ordinal: int) -> None:
    """Do what kubelets and controllers do once the claim of a pod was deleted."""
    pod, claim = f"flights-{ordinal}", f"data-flights-{ordinal}"
    await led.until("the claim is deleted", lambda: is_leaving(led, CLAIMS, claim))

    def pod_is_gone() -> bool:
        found = {each["metadata"]["name"]: each for each in led.namespace.get("pods")["items"]}
        if pod in found and "deletionTimestamp" in found[pod]["metadata"]:
            with contextlib.suppress(RefusedError):  # its time of grace has just ended
                led.namespace.delete_pod(pod)
        return pod not in found

    await led.until("the pod is removed", pod_is_gone)
    led.namespace.patch(CLAIMS, claim, {"metadata": {"finalizers": None}})
    body = led.namespace.get("dledgergroups", "flights", API)
    make_claim(led, ordinal, "new")
    led.namespace.make_pod(parsed(body), ordinal, led.nodes[ordinal].ip)
    led.namespace.make_pod_unready(pod)


async def join(led: Led, ordinal: int) -> None:
    """Let a member with an empty volume join again."""
    node = led.nodes[ordinal]
    await node.answer()
    led.members.tell_statuses()
    whole = node.status
    node.status = replace(whole, joining=True, ready=False, reason="waits for entries")
    await led.until("it is seen to join", lambda: reason(led) == "MemberJoining")
    node.status = whole
    led.namespace.make_pod_ready(f"flights-{ordinal}", node.ip)


async def test_a_lost_member_gets_a_new_volume_across_crashes_of_the_operator(led: Led) -> None:
    await lose(led, 2)
    order(led, "n2")
    await led.until("the claim is deleted", lambda: is_leaving(led, CLAIMS, "data-flights-2"))
    led.operator.kill()
    led.operator.start()
    await renew(led, 2)
    await led.until("the volume is recorded", lambda: "newVolume" in result(led))
    led.operator.kill()
    led.operator.start()
    await join(led, 2)

    await led.until("it succeeds", lambda: reason(led) == "Replaced")

    status, volume = result(led), f"{led.namespace.name}-2"
    assert (status["volume"], status["newVolume"]) == (f"{volume}-old", f"{volume}-new")
    assert not any(is_leaving(led, CLAIMS, f"data-flights-{each}") for each in range(3))
    events = {each["reason"]: each for each in led.namespace.get("events")["items"]}
    assert events["ReplacementFinished"]["involvedObject"]["kind"] == "DLedgerReplace"
    metrics = await asyncio.to_thread(led.operator.metrics)
    assert 'dledger_replacements_total{reason="Replaced"} 1.0' in metrics
    assert "forbidden" not in led.operator.log().lower(), "the chart's role suffices"
    assert "Traceback" not in led.operator.log()


async def test_a_claim_without_its_label_is_the_member_s_claim_all_the_same(led: Led) -> None:
    unlabelled = {"metadata": {"labels": {"dledger.io/group": None}}}
    led.namespace.patch(CLAIMS, "data-flights-2", unlabelled)
    await lose(led, 2)
    order(led, "n2")

    await led.until("the claim is deleted", lambda: is_leaving(led, CLAIMS, "data-flights-2"))

    assert result(led)["volume"] == f"{led.namespace.name}-2-old"


async def test_a_member_that_serves_keeps_its_volume(led: Led) -> None:
    order(led, "n2")

    await led.until("it is refused", lambda: reason(led) == "MemberServes")

    assert result(led)["phase"] == "Failed"
    assert not is_leaving(led, CLAIMS, "data-flights-2")


async def test_nothing_is_removed_while_a_second_member_is_down(led: Led) -> None:
    await lose(led, 2)
    await led.nodes[0].fall_silent()
    order(led, "n2")

    await led.until("it is refused", lambda: reason(led) == "QuorumAtRisk")

    assert "n0 does not answer" in result(led)["conditions"][0]["message"]
    assert not is_leaving(led, CLAIMS, "data-flights-2")
