"""A full volume wakes the reconciliation that lets its claim grow, and only for that."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger_formats.http.status import NodeStatus
from dledger_kube.objects import IMAGES, NOW, group_body, node_status, pod
from dledger_kube.worker_context import unconnected
from dledger_operator.api_objects import PodView, VolumeClaimView
from dledger_operator.behaviors.children import group_reconcile
from dledger_operator.behaviors.children.reconcile import ReconcileResult
from dledger_operator.behaviors.group_worker import GroupWorker
from dledger_operator.behaviors.leader.role_labeler import FollowResult
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape

GIB = 1 << 30
PODS = (pod(0), pod(1), pod(2))
AUTO = {"usedPercent": 80, "step": "5Gi", "maxSize": "22Gi", "coolDown": "1h"}
BODY = group_body({"storage": {"size": "10Gi", "autoGrow": AUTO}})


def claim(requested: str = "10Gi", **fields: Any) -> VolumeClaimView:
    """The bound claim of n0."""
    known: dict[str, Any] = {
        "name": "data-flights-0", "ordinal": 0, "first_voters": 3, "identity": "",
        "leaving": False, "problem": None, "requested": requested, "capacity": requested,
    }  # fmt: skip
    return VolumeClaimView(**known | fields)


class World:
    """A group with one claim, whose worker takes turns when a test asks for them."""

    def __init__(self, seen: VolumeClaimView, used_percent: int) -> None:
        self.claim, self.used_percent, self.now = seen, used_percent, NOW
        context = unconnected(SimpleNamespace(volume_claims=self._claims))
        cast("Any", context).now = lambda: self.now
        self.worker = GroupWorker(BODY, context, lambda: None)
        self.worker._snapshot.followed = FollowResult(pods=PODS)
        cast("Any", self.worker._rolls).ask = self._ask

    async def _claims(self, namespace: str, name: str) -> list[VolumeClaimView]:
        return [self.claim]

    async def _ask(self, pods: Sequence[PodView]) -> Mapping[str, NodeStatus]:
        size = int(self.claim.capacity.removesuffix("Gi")) * GIB
        left = size * (100 - self.used_percent) // 100
        full = replace(node_status("n0"), volume_size_bytes=size, volume_available_bytes=left)
        return {"uid-0": full}

    async def reconcile(self) -> None:
        await self.worker._reconcile()
        await self.worker.loops.wakes["reconcile"].wait(0.0)

    async def observing_wakes_reconcile(self) -> bool:
        await self.worker._observe()
        return await self.worker.loops.wakes["reconcile"].wait(0.01)


@pytest.fixture(autouse=True)
def reconciles_without_growing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each reconciliation succeed; a claim grows when a test says so."""

    async def succeed(_: object, body: Mapping[str, Any], *__: object, **___: object) -> Any:
        applied = Group.from_body(body, IMAGES)
        return ReconcileResult(generation=4, group=applied, shape=Shape.of_new(3))

    monkeypatch.setattr(group_reconcile, "reconcile", succeed)


async def test_a_volume_that_has_filled_up_wakes_the_reconciliation() -> None:
    world = World(claim(), used_percent=50)
    await world.reconcile()
    assert not await world.observing_wakes_reconcile()

    world.used_percent = 85
    assert await world.observing_wakes_reconcile()


@pytest.mark.parametrize(
    "seen",
    [
        claim("22Gi"),
        claim("15Gi", capacity="10Gi"),
        claim("15Gi", grown_at=NOW - timedelta(minutes=10)),
        claim("9Gi", name="data-flights-3", ordinal=3),
    ],
    ids=["has its maximum", "is growing", "cools down", "is that of a removed member"],
)
async def test_a_full_volume_that_cannot_grow_now_wakes_nothing(seen: VolumeClaimView) -> None:
    world = World(seen, used_percent=85)
    await world.reconcile()

    assert not await world.observing_wakes_reconcile()


async def test_a_growth_that_was_refused_is_asked_for_again_only_with_the_next_look() -> None:
    world = World(claim(), used_percent=85)
    await world.reconcile()
    await world.worker._observe()
    await world.reconcile()

    for _ in range(3):
        assert not await world.observing_wakes_reconcile()


async def test_a_full_volume_grows_as_soon_as_its_cool_down_is_over() -> None:
    grown_at: datetime = NOW - timedelta(minutes=59)
    world = World(claim("15Gi", grown_at=grown_at), used_percent=85)
    await world.reconcile()
    assert not await world.observing_wakes_reconcile()

    world.now += timedelta(minutes=2)
    assert await world.observing_wakes_reconcile()
    await world.reconcile()
    world.claim = claim("20Gi", grown_at=world.now)
    world.worker.claim_changed()
    await world.reconcile()
    assert not await world.observing_wakes_reconcile()
    world.now += timedelta(hours=2)
    assert await world.observing_wakes_reconcile(), "the next step is another growth"
