"""How often the operator looks at what lasts until somebody acts, and what wakes it sooner."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, cast

import pytest

from dledger_kube.objects import IMAGES, group, group_body, pod
from dledger_kube.rolling_world import BAD, RollingWorld
from dledger_kube.switchover_world import SwitchoverWorld
from dledger_kube.worker_context import unconnected
from dledger_operator.behaviors.children.reconcile import ReconcileResult
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.group_worker import GroupWorker
from dledger_operator.behaviors.handover.placer import Placer
from dledger_operator.behaviors.leader.role_labeler import FollowResult
from dledger_operator.behaviors.loops import LASTING_S_MAX, Lasting
from dledger_operator.behaviors.rolls.group_roll import GroupRoll
from dledger_operator.behaviors.rolls.roll import Roller
from dledger_operator.observed_state import Leader, Membership
from dledger_operator.resources import children
from dledger_operator.spec.shape import Shape

HOUR_S = 3600.0
LOOKS_MAX = HOUR_S / LASTING_S_MAX + 40
"""Within an hour in which nothing changes; there were 3600."""
Look = Callable[[], Awaitable[float | None]]


def test_the_pause_is_a_part_of_the_time_for_which_nothing_has_changed() -> None:
    times_s = [0.0, 8.0, 40.0, 1000.0, 1000.0, 2000.0]
    lasting = Lasting(lambda: times_s.pop(0))

    paused = [lasting.pause_s("the same") for _ in range(4)]

    assert paused == [1.0, 1.0, 5.0, LASTING_S_MAX]
    assert lasting.pause_s("another") == 1.0
    lasting.forget()
    assert lasting.pause_s("another") == 1.0


async def looks_in_an_hour(world: Any, look: Look) -> int:
    looks, end_s = 0, world.now_s + HOUR_S
    while world.now_s < end_s:
        again_s = await look()
        assert again_s is not None
        world.pass_time(again_s)
        looks += 1
    return looks


def rolling(world: RollingWorld) -> Look:
    roller = Roller(
        world, world, ask=world.ask, why_emptied=world.why_emptied, clock=lambda: world.now_s,
        random=Random(1), on_event=lambda _: None,
    )  # fmt: skip
    voters = Membership(voters=frozenset(f"n{each}" for each in range(world.size)))

    async def look() -> float | None:
        return await roller.run_once(
            group(replicas=world.size), world.wanted, voters, identity="", led=True, scaling=False
        )

    return look


async def test_a_halted_roll_is_looked_at_four_times_a_minute_and_goes_on_with_the_next_spec() -> (
    None
):
    world = RollingWorld(size=3)
    world.image = f"{BAD}:2"
    look = rolling(world)

    assert await looks_in_an_hour(world, look) <= LOOKS_MAX
    assert await look() == LASTING_S_MAX

    world.image = "node:3"
    assert await look() == 1.0, "the step is not the one that was waited for"


class Placing:
    """A placer of a group whose leader runs on a cordoned node."""

    def __init__(self, **spec: Any) -> None:
        self.world = SwitchoverWorld(unready={"n0", "n2"})
        body = group_body(spec)
        self.snapshot = GroupSnapshot.of(body, IMAGES)
        self.snapshot.reconciled = ReconcileResult(generation=4)
        self.snapshot.followed = FollowResult(
            pods=tuple(pod(each, node=f"worker-{each}") for each in range(3)),
            leader=Leader(term=7, member_id="n1"),
        )
        self.world.nodes.readable = True
        for each in range(3):
            self.world.nodes.changed(
                {"metadata": {"name": f"worker-{each}"}, "spec": {"unschedulable": each == 1}}
            )
        self.placer = Placer(self.world.context(), self.snapshot, lambda _: None, lambda: None)

    @property
    def reason(self) -> str:
        return self.snapshot.placement.reason if self.snapshot.placement else ""


@pytest.mark.parametrize("spec", [{}, {"preferredLeader": {"member": "n0"}}])
async def test_a_leader_without_a_successor_is_looked_at_four_times_a_minute(
    spec: dict[str, Any],
) -> None:
    placing = Placing(**spec)

    assert await looks_in_an_hour(placing.world, placing.placer.run_once) <= LOOKS_MAX
    assert placing.reason == "NoSuccessor"
    assert await placing.placer.run_once() == LASTING_S_MAX


async def test_a_successor_that_catches_up_lasts_although_its_lag_differs_at_each_look() -> None:
    placing = Placing()
    placing.world.unready = {"n0"}

    async def look() -> float | None:
        placing.world.lags["n2"] = 2000 + round(placing.world.now_s)
        return await placing.placer.run_once()

    assert await looks_in_an_hour(placing.world, look) <= LOOKS_MAX


async def test_a_leader_gets_away_at_the_first_look_after_a_successor_is_ready() -> None:
    placing = Placing()
    await looks_in_an_hour(placing.world, placing.placer.run_once)

    placing.world.unready = {"n0"}
    again_s = await placing.placer.run_once()

    assert placing.world.leader == "n2"
    assert again_s == 1.0


async def test_a_leader_gets_away_at_once_although_the_preferred_member_never_takes_over() -> None:
    """A member that cannot win an election must not keep the leader on a node that is drained."""
    placing = Placing(preferredLeader={"member": "n0"})
    world = placing.world
    world.unready = set()
    world.nodes.changed({"metadata": {"name": "worker-1"}, "spec": {}})
    world.refuses_next = 1000
    while world.now_s < HOUR_S:
        again_s = await placing.placer.run_once()
        assert again_s is not None
        world.pass_time(again_s)
    assert placing.reason == "TransferRefused"
    assert {to for _, _, to in world.transfers} == {"n0"}
    tries = len(world.transfers)
    assert tries < HOUR_S / 25

    world.refuses_next = 0
    world.nodes.changed({"metadata": {"name": "worker-1"}, "spec": {"unschedulable": True}})
    await placing.placer.run_once()

    assert world.leader == "n2"
    assert len(world.transfers) == tries + 1


async def test_a_preferred_leader_that_settles_is_looked_at_as_often_as_before() -> None:
    """What it does meanwhile has no event, and decides when its time begins."""
    placing = Placing(preferredLeader={"member": "n0", "stableFor": "10m"})
    placing.world.unready = set()
    placing.world.nodes.changed({"metadata": {"name": "worker-1"}, "spec": {}})

    for _ in range(60):
        assert await placing.placer.run_once() == 5.0
        placing.world.pass_time(5.0)
    assert placing.reason == "Settling"


async def test_a_roll_that_waits_for_its_window_looks_right_when_it_opens() -> None:
    spec = {
        "updatePolicy": "Window",
        "updateWindow": {"days": ["Sat"], "from": "22:00", "to": "23:00"},
    }
    opens = datetime(2026, 1, 3, 22, tzinfo=UTC)
    now = opens - timedelta(seconds=100)
    context = cast("Any", unconnected())
    context.authorized_requests = lambda *_: None
    context.now = lambda: now
    snapshot = GroupSnapshot.of(group_body(spec), IMAGES)
    wanted = children.revision(group(**spec), Shape.of_new(3))
    snapshot.reconciled = ReconcileResult(generation=4, shape=Shape.of_new(3), wanted=wanted)
    snapshot.followed = FollowResult(pods=(pod(0),))
    roll = GroupRoll(context, snapshot, lambda _: None)

    looks = 0
    while now < opens:
        again_s = await roll.run_once(group_body(spec), led=True, scaling_problem=None)
        assert again_s is not None
        now += timedelta(seconds=again_s)
        looks += 1

    assert now == opens
    assert looks <= 100 / LASTING_S_MAX + 1


@pytest.mark.parametrize("loop", ["roll", "place"])
async def test_a_pod_that_changes_and_an_applied_spec_wake_what_waits(loop: str) -> None:
    worker = GroupWorker(group_body(), unconnected(), lambda: None)
    wake = worker.loops.wakes[loop]

    worker._on_settled(FollowResult(pods=(pod(0),)))
    assert await wake.wait(0.01)
    worker._on_settled(FollowResult(pods=(replace(pod(0), ready=False),)))
    assert await wake.wait(0.01)
    worker._on_settled(FollowResult(pods=(replace(pod(0), ready=False),)))
    assert not await wake.wait(0.01)


async def test_a_node_of_the_group_that_changes_wakes_what_moves_the_leader() -> None:
    worker = GroupWorker(group_body(), unconnected(), lambda: None)
    worker._snapshot.followed = FollowResult(pods=(pod(0, node="worker-1"),))
    wake = worker.loops.wakes["place"]

    worker.node_changed("worker-2")
    assert not await wake.wait(0.01)
    worker.node_changed("worker-1")
    assert await wake.wait(0.01)
