"""Times that an operator whose clock was wrong has recorded in a one-off object."""

import copy
from datetime import timedelta
from typing import Any

import pytest

from dledger_kube.one_off_world import Object
from dledger_kube.switchover_world import SwitchoverWorld, switchover_body
from dledger_operator import names

DAY = timedelta(days=1)
TTL_S = 600


def ended(world: SwitchoverWorld, finished_at: str) -> None:
    body = switchover_body(name="move", ttlAfterFinished="10m")
    body["status"] = {
        "phase": "Failed",
        "startedAt": finished_at,
        "finishedAt": finished_at,
        "conditions": [{"type": "Complete", "status": "False", "reason": "TimedOut"}],
    }
    world.objects["move-uid"] = body


async def run(world: SwitchoverWorld, for_s: float) -> None:
    """Let an operator work on the object for some time."""
    worker = world.worker("move-uid")
    end_s = world.now_s + for_s
    while world.now_s < end_s and not worker.done():
        again_s = await worker._run_once()
        world.pass_time(worker.pace.interval_s if again_s is None else max(again_s, 0.1))


async def test_an_object_that_ended_in_the_future_is_deleted_in_time() -> None:
    world = SwitchoverWorld()
    began = names.timestamp(world.now)
    ended(world, names.timestamp(world.now + DAY))
    conditions = copy.deepcopy(world.status("move-uid")["conditions"])

    await run(world, TTL_S / 2)
    kept: Object = dict(world.status("move-uid"))
    await run(world, TTL_S)

    assert kept["finishedAt"] == began
    assert (kept["phase"], kept["conditions"]) == ("Failed", conditions)
    assert world.objects == {}


async def test_an_object_that_ended_before_its_creation_is_kept_for_its_time() -> None:
    world = SwitchoverWorld()
    ended(world, names.timestamp(world.now - DAY))

    await run(world, TTL_S / 2)
    assert "move-uid" in world.objects
    await run(world, TTL_S)
    assert world.objects == {}


@pytest.mark.parametrize("off", [DAY, -DAY], ids=["ahead", "behind"])
async def test_work_that_began_by_a_wrong_clock_has_its_time(off: timedelta) -> None:
    world = SwitchoverWorld(leader=None)
    body: Any = switchover_body(name="move", timeout="60s")
    body["status"] = {
        "phase": "Running", "startedAt": names.timestamp(world.now + off), "from": "n1",
        "conditions": [{"type": "Complete", "status": "False", "reason": "Running"}],
    }  # fmt: skip
    world.objects["move-uid"] = body

    await run(world, 30)
    assert world.status("move-uid")["phase"] == "Running"
    await run(world, 60)
    assert world.outcome("move-uid") == ("Failed", "TimedOut")
