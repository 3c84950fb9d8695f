"""Replacements and switchovers whose time is over before they have done much, because the operator
was away, or because its requests fail.
"""

import contextlib
from typing import Any

import pytest

from dledger_kube.replace_world import ReplaceWorld, replace_body
from dledger_kube.switchover_world import SwitchoverWorld, switchover_body
from dledger_operator.clients.errors import RefusedError
from dledger_operator.spec.spec_reader import InvalidSpecError

FORBIDDEN = "list the pods of air/flights: forbidden"


@pytest.mark.parametrize("recorded", [False, True], ids=["begun", "claim recorded"])
async def test_an_operator_that_comes_back_after_the_time_removes_nothing(recorded: bool) -> None:
    """Meanwhile, somebody may have taken the replacement for failed, and mends the old volume."""
    world = ReplaceWorld.of(3)
    world.members["n2"].lose()
    world.objects["renew-uid"] = replace_body(timeout="10m")
    for _ in range(2 if recorded else 1):
        await world.worker("renew-uid")._run_once()
    assert ("claimUid" in world.status("renew-uid")) is recorded

    world.pass_time(9 * 3600)
    await world.worker("renew-uid")._run_once()

    assert world.outcome("renew-uid") == ("Failed", "TimedOut")
    assert world.status("renew-uid")["conditions"][0]["message"] == (
        "the replacement could not begin within 600 s; nothing was removed: the check after which "
        "the volume of n2 may go succeeded only later"
    )
    assert not world.deleted


async def test_a_pod_that_still_uses_the_removed_volume_after_the_time_is_named_with_the_cure() -> (
    None
):
    """Its member came back and is needed. Nobody removes it any more, so it would not join."""
    world = ReplaceWorld.of(3)
    world.members["n2"].lose()
    world.objects["renew-uid"] = replace_body(timeout="10m")
    worker = world.worker("renew-uid")
    while not world.deleted:
        await worker._run_once()
    world.members["n2"].alive, world.members["n1"].alive = True, False

    world.pass_time(601.0)
    await worker._run_once()

    assert world.outcome("renew-uid") == ("Failed", "TimedOut")
    message = world.status("renew-uid")["conditions"][0]["message"]
    assert "once the other members are whole, delete pod flights-2" in message
    assert "joins as soon as it can" not in message


class Refused:
    """The API server of a world, which refuses to list pods."""

    def __init__(self, world: Any) -> None:
        self._api = world.context().api

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def member_pods(self, *_: object) -> None:
        raise RefusedError(FORBIDDEN)


def begun(kind: str) -> tuple[Any, Any, str]:
    """Return a world, a worker whose object has begun there, and the object's uid."""
    world: Any
    if kind == "replacement":
        world, uid = ReplaceWorld.of(3), "renew-uid"
        world.objects[uid] = replace_body(timeout="60s")
    else:
        world, uid = SwitchoverWorld(), "move-uid"
        world.objects[uid] = switchover_body(timeout="60s")
    return world, world.worker(uid), uid


async def fail_for(seconds: int, world: Any, worker: Any) -> None:
    """Let one turn a second fail."""
    for _ in range(seconds):
        if worker.ended():
            return
        with contextlib.suppress(RefusedError):
            await worker._run_once()
        world.pass_time(1.0)


@pytest.mark.parametrize("kind", ["replacement", "switchover"])
async def test_requests_that_fail_are_told_and_end_the_work_with_its_time(kind: str) -> None:
    world, worker, uid = begun(kind)
    await worker._run_once()
    worker._context.api = Refused(world)

    await fail_for(3, world, worker)
    assert world.outcome(uid) == ("Running", "Running"), "a retry may mend it"

    await fail_for(10, world, worker)
    assert world.outcome(uid) == ("Running", "RequestFails")
    assert world.status(uid)["conditions"][0]["message"] == FORBIDDEN

    await fail_for(60, world, worker)
    assert world.outcome(uid) == ("Failed", "TimedOut")
    assert world.status(uid)["conditions"][0]["message"] == (
        f"it did not end within 60 s, and requests fail: {FORBIDDEN}"
    )


@pytest.mark.parametrize("kind", ["replacement", "switchover"])
async def test_one_request_that_fails_after_the_time_ends_nothing(kind: str) -> None:
    """It may have succeeded meanwhile, which the next look shows."""
    world, worker, uid = begun(kind)
    await worker._run_once()
    world.pass_time(3600.0)
    worker._context.api = Refused(world)

    await fail_for(1, world, worker)

    assert world.outcome(uid) == ("Running", "Running")


@pytest.mark.parametrize("kind", ["replacement", "switchover"])
async def test_a_group_whose_leader_cannot_be_followed_ends_the_work_with_its_time(
    kind: str,
) -> None:
    world, worker, uid = begun(kind)
    await worker._run_once()
    world.group["spec"]["replicas"] = "many"

    for _ in range(70):
        if not worker.ended():
            try:
                await worker._run_once()
            except InvalidSpecError:
                world.pass_time(1.0)

    assert world.outcome(uid)[0] == "Failed"
