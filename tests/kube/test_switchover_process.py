"""Switchovers by the operator as deployed: a process, the chart's role and a real API server.

The test plays the controllers and kubelets; fake members answer on loopback.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api_server.client import ApiServer
from dledger_kube.cluster import API
from dledger_kube.led import KIND, Led, led_group
from dledger_kube.played import led_by

pytest_plugins = ["api_server.fixtures"]


@pytest.fixture
async def led(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Led]:
    async with led_group(api_server, tmp_path) as made:
        yield made


async def test_the_leadership_moves_and_the_status_tells_how(led: Led) -> None:
    led.order("to-n2", "n2")

    await led.until("it succeeds", lambda: led.outcome("to-n2") == ("Succeeded", "SwitchedOver"))

    status = led.result("to-n2")
    assert led.members.transfers == [("n1", "n2")]
    assert led.roles() == led_by(2)
    assert (status["from"], status["term"]) == ("n1", 8)
    assert {"checkSeconds", "transferSeconds", "serviceSeconds"} <= status.keys()
    events = {each["reason"]: each for each in led.namespace.get("events")["items"]}
    assert events["SwitchoverFinished"]["involvedObject"]["kind"] == "DLedgerSwitchover"
    metrics = await asyncio.to_thread(led.operator.metrics)
    assert 'dledger_switchovers_total{reason="SwitchedOver"} 1.0' in metrics
    assert "dledger_switchover_seconds_count 1.0" in metrics
    assert "forbidden" not in led.operator.log().lower(), "the chart's role suffices"
    assert "Traceback" not in led.operator.log()


async def test_two_switchovers_at_once_are_carried_out_one_after_the_other(led: Led) -> None:
    led.order("a-to-n2", "n2")
    led.order("b-to-n0", "n0")

    await led.until("the second one succeeds", lambda: led.outcome("b-to-n0")[0] == "Succeeded")

    assert led.outcome("a-to-n2") == ("Succeeded", "SwitchedOver")
    assert led.members.transfers == [("n1", "n2"), ("n2", "n0")]


async def test_an_operator_that_is_killed_goes_on_with_the_switchover(led: Led) -> None:
    await led.nodes[0].fall_silent()
    led.operator.kill()
    led.order("to-n2", "n2")
    led.order("to-n0", "n0")
    led.operator.start()
    await led.until("the first one ends", lambda: bool(led.result("to-n0").get("finishedAt")))
    led.operator.kill()
    led.operator.start()

    await led.until("both end", lambda: bool(led.result("to-n2").get("finishedAt")))

    assert led.outcome("to-n0") == ("Failed", "MemberSilent")
    assert led.outcome("to-n2") == ("Succeeded", "SwitchedOver")
    assert led.members.transfers == [("n1", "n2")]


async def test_a_switchover_of_a_paused_group_is_refused_in_words(led: Led) -> None:
    led.change(paused=True)
    led.order("to-n2", "n2")

    await led.until("it fails", lambda: led.outcome("to-n2") == ("Failed", "Paused"))

    assert led.members.transfers == []


async def test_a_finished_switchover_is_deleted_after_its_time(led: Led) -> None:
    finished = {
        "phase": "Succeeded", "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    led.operator.kill()
    led.order("old", "n2")
    led.order("new", "n2")
    led.namespace.patch(KIND, "old/status", {"status": finished}, API)
    led.operator.start()

    def existing() -> list[str]:
        return [each["metadata"]["name"] for each in led.namespace.get(KIND, "", API)["items"]]

    await led.until("the old one is gone", lambda: existing() == ["new"])
    await led.until("the new one ends", lambda: led.outcome("new")[0] == "Succeeded")
