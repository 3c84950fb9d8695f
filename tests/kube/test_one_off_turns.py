"""Objects about one group that are carried out once take turns; one that waits costs little."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from dledger_kube.one_off_world import Object, OneOffWorld
from dledger_kube.replace_world import ReplaceWorld, replace_body
from dledger_kube.switchover_world import SwitchoverWorld, switchover_body
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.leases.duties import Duty
from dledger_operator.behaviors.one_off.one_offs import OneOffs
from dledger_operator.behaviors.one_off.stepped import ENDED_PHASES, SteppedWorker
from dledger_operator.behaviors.one_off.worker import OneOffWorker

HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("world", "body"),
    [(SwitchoverWorld(), switchover_body), (ReplaceWorld(), replace_body)],
    ids=["switchover", "replacement"],
)
async def test_an_object_that_waits_for_its_turn_asks_the_api_server_once_a_minute(
    world: OneOffWorld, body: Any
) -> None:
    world.objects["first-uid"] = body(name="first")
    world.objects["first-uid"]["status"] = {"startedAt": "2026-01-01T00:00:00Z"}
    world.objects["next-uid"] = body(name="next")
    worker = cast("SteppedWorker[Any]", cast("Any", world).worker("next-uid"))
    end_s = world.now_s + HOUR_S

    while world.now_s < end_s:
        again_s = await worker._run_once()
        world.now_s += worker.pace.interval_s if again_s is None else again_s

    assert world.status("next-uid")["phase"] == "Pending"
    assert world.requests <= 62, "one to read each minute, and one to say what it waits for"


class Noted(OneOffWorker):
    """A worker that does nothing, and notes who was woken."""

    ended_phases = ENDED_PHASES
    woken: ClassVar[list[str]] = []

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def _run_once(self) -> None:
        """Do nothing."""

    def wake(self) -> None:
        self.woken.append(self.name)


def named(name: str, group: str = "flights", **status: str) -> Object:
    made = switchover_body(name=name)
    made["metadata"]["uid"] = f"{name}-uid"
    made["spec"] = {**made["spec"], "groupRef": {"name": group}}
    return made | ({"status": status} if status else {})


BEGUN = {"phase": "Running", "startedAt": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("event", "woken"),
    [
        (named("a", phase="Succeeded", startedAt=BEGUN["startedAt"]), ["c"]),
        (named("a", **BEGUN, newVolume="v"), ["c"]),
        (named("a", **BEGUN), []),
        (named("d", phase="Pending", message="a goes first"), []),
        (named("b", phase="Failed", message="its spec is invalid", finishedAt="now"), ["c"]),
        (named("x", group="trains", phase="Succeeded"), ["y"]),
    ],
    ids=["the end", "progress", "a repeated event", "another waits", "a refusal", "another group"],
)
async def test_a_change_of_an_object_wakes_the_one_whose_turn_may_have_come(
    event: Mapping[str, Any], woken: list[str]
) -> None:
    duties = SimpleNamespace(of=lambda _: Duty.ALL)
    context = cast("Context", SimpleNamespace(duties=duties))
    one_offs = OneOffs(Noted, context, lambda: None)
    first, refused = named("a", **BEGUN), named("b", phase="Failed", message="its spec is invalid")
    for each in (
        named("d"),
        named("c"),
        first,
        refused,
        named("x", "trains"),
        named("y", "trains"),
    ):
        one_offs.changed(each)
    Noted.woken.clear()

    one_offs.changed(event)

    assert Noted.woken == woken
    for task in one_offs.close():
        task.cancel()


async def test_the_deletion_of_an_object_wakes_the_next_one() -> None:
    duties = SimpleNamespace(of=lambda _: Duty.ALL)
    one_offs = OneOffs(Noted, cast("Context", SimpleNamespace(duties=duties)), lambda: None)
    for each in (named("a", **BEGUN), named("b"), named("c")):
        one_offs.changed(each)
    Noted.woken.clear()

    one_offs.deleted(named("a", **BEGUN))

    assert Noted.woken == ["b"]
    one_offs.close()
