"""How often a group is read that is not well for long, and how soon what is new is noticed."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger_formats.http.status import NodeStatus
from dledger_kube.objects import NOW, group, group_body, membership, node_status, pod
from dledger_kube.worker_context import unconnected
from dledger_operator.api_objects import (
    CreationFailure,
    EndpointView,
    PodView,
    VolumeClaimView,
)
from dledger_operator.behaviors.children.reconcile import ReconcileResult
from dledger_operator.behaviors.group_worker import GroupWorker
from dledger_operator.behaviors.leader.role_labeler import FollowResult
from dledger_operator.behaviors.loops import GROUP_PACES, LASTING_S_MAX, WAITING_INTERVAL_S
from dledger_operator.clients.errors import UnavailableError

PACE = GROUP_PACES["observe"]
MINUTE_S = 60.0
QUOTA = CreationFailure(pod="flights-2", message="exceeded quota")
CLAIM = VolumeClaimView(
    name="data-flights-2", ordinal=2, first_voters=3, identity="", leaving=False, problem=None
)
READY = tuple(replace(pod(each), ready=True) for each in range(3))


class World:
    """A group whose worker looks at its members whenever its pace says so; time passes between."""

    def __init__(self, **spec: Any) -> None:
        self.now_s = 0.0
        self.failures: list[CreationFailure] = []
        self.claims: list[VolumeClaimView] = []
        self.is_down = False
        self.read_at_s: list[float] = []
        context = cast("Any", unconnected(self))
        context.clock = lambda: self.now_s
        context.now = self.now
        self.worker = GroupWorker(group_body(spec), context, lambda: None)
        self.snapshot = self.worker._snapshot
        self.snapshot.membership = membership()
        self.snapshot.reconciled = ReconcileResult(generation=4, group=group(**spec))
        self.silent: set[str] = set()
        cast("Any", self.worker._rolls).ask = self._ask
        self.has(READY)

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.now_s)

    def has(self, pods: Sequence[PodView]) -> None:
        self.snapshot.followed = FollowResult(pods=tuple(pods))

    async def volume_claims(self, *_: object) -> list[VolumeClaimView]:
        if self.is_down:
            raise UnavailableError("no answer")
        self.read_at_s.append(self.now_s)
        return self.claims

    async def service_endpoints(self, *_: object) -> list[EndpointView]:
        return []

    async def stateful_set(self, *_: object) -> Any:
        return SimpleNamespace(uid="stateful-set-uid")

    async def creation_failures(self, *_: object) -> list[CreationFailure]:
        return list(self.failures)

    async def _ask(self, pods: Sequence[PodView]) -> dict[str, NodeStatus]:
        asked = [each for each in pods if each.member_id not in self.silent]
        return {each.uid: replace(node_status(each.member_id), ready=True) for each in asked}

    async def look(self) -> float:
        """Look once, and let the time pass until the next look, which is returned."""
        again_s = await self.worker._observe()
        pause_s = PACE.interval_s if again_s is None else PACE.gap_s + again_s
        self.now_s += pause_s
        return pause_s

    async def minutes(self, count: float) -> list[float]:
        """Let minutes pass, and return the times between two reads."""
        self.read_at_s, end_s = [], self.now_s + count * MINUTE_S
        while self.now_s < end_s:
            await self.look()
        return [b - a for a, b in zip(self.read_at_s, self.read_at_s[1:], strict=False)]


async def test_a_pod_that_is_missing_for_long_is_read_about_four_times_a_minute() -> None:
    world = World()
    world.has(READY[:2])
    world.failures = [QUOTA]

    assert max(await world.minutes(1)) > WAITING_INTERVAL_S + PACE.gap_s
    pauses_s = await world.minutes(29)

    assert len(pauses_s) <= 29 * 4
    assert LASTING_S_MAX <= pauses_s[-1] < LASTING_S_MAX + PACE.interval_s
    assert world.snapshot.failures == [QUOTA]


async def test_a_group_that_sleeps_is_read_only_after_a_change() -> None:
    world = World(hibernate=True)
    world.snapshot.followed = FollowResult(roles=group().roles)
    await world.minutes(1)

    await world.minutes(60)

    assert world.read_at_s == []
    assert await world.worker._endpoints.run_once() is None
    world.worker.claim_changed()
    await world.look()
    assert len(world.read_at_s) == 1


async def test_a_group_without_a_majority_is_asked_at_the_usual_pace_after_a_while() -> None:
    world = World()
    world.silent = {"n0", "n1"}

    assert await world.look() == WAITING_INTERVAL_S + PACE.gap_s
    assert await world.minutes(1) == [], "all pods are there, and ready"
    assert await world.look() == PACE.interval_s


@pytest.mark.parametrize("change", ["pods", "spec", "claims", "failures"])
async def test_a_change_is_read_about_at_once_and_often(change: str) -> None:
    world = World()
    world.has(READY[:2])
    await world.minutes(30)

    if change == "pods":
        world.has(READY[:1])
    elif change == "spec":
        world.snapshot.group = group(replicas=5)
    elif change == "claims":
        world.claims = [CLAIM]
        world.worker.claim_changed()
    else:
        world.failures = [QUOTA]
        await world.minutes(LASTING_S_MAX / MINUTE_S)
    world.read_at_s = []
    looked_s = await world.look()

    assert looked_s == WAITING_INTERVAL_S + PACE.gap_s
    assert max(await world.minutes(0.1), default=0.0) == looked_s


async def test_why_a_pod_is_missing_is_known_within_five_seconds() -> None:
    world = World()
    await world.minutes(30)

    world.has(READY[:2])
    await world.look()
    world.failures, began_s = [QUOTA], world.now_s
    while not world.snapshot.failures:
        await world.look()

    assert world.now_s - began_s < PACE.interval_s
    assert await world.worker.loops.wakes["report"].wait(0.01)
    world.has(READY)
    await world.look()
    assert world.snapshot.failures == []


@pytest.mark.parametrize("replicas", [3, 5])
async def test_why_a_voters_pod_is_missing_is_known_although_as_many_pods_exist_as_are_asked_for(
    replicas: int,
) -> None:
    """A quota may be the reason to make a group smaller, or a member may be lost while it grows."""
    world = World(replicas=3)
    world.snapshot.membership = membership(5)
    world.snapshot.group = group(replicas=replicas)
    world.failures = [QUOTA]

    world.has([replace(pod(each), ready=True) for each in (0, 1, 3, 4, 5)[: replicas + 1]])
    await world.look()

    assert world.snapshot.failures == [QUOTA]


async def test_a_refusal_from_before_the_pod_was_made_is_not_told_of_its_successor() -> None:
    world = World()
    await world.minutes(2)
    world.failures = [replace(QUOTA, at=world.now() - timedelta(minutes=1))]
    world.has(READY[:2])
    await world.look()
    assert world.snapshot.failures == []

    world.failures = [replace(QUOTA, at=world.now())]
    await world.look()
    assert world.snapshot.failures == [QUOTA]


def test_a_repetition_is_no_change() -> None:
    assert replace(QUOTA, at=NOW) == QUOTA


async def test_a_pod_that_was_never_seen_is_missing_for_any_reason_that_events_tell() -> None:
    world = World()
    world.has(READY[:2])
    world.failures = [replace(QUOTA, at=world.now() - timedelta(minutes=59))]

    await world.look()

    assert world.snapshot.failures == [QUOTA]


async def test_a_paused_group_is_not_looked_at_more_often_than_others() -> None:
    world = World(replicas=5, paused=True)

    assert min(await world.minutes(30)) == PACE.interval_s
    assert await world.look() == PACE.interval_s


async def test_claims_that_could_not_be_read_are_read_again() -> None:
    world = World()
    await world.look()
    world.claims, world.is_down = [CLAIM], True
    world.worker.claim_changed()
    with pytest.raises(UnavailableError):
        await world.look()

    world.is_down = False
    await world.look()

    assert world.snapshot.claims == [CLAIM]


async def test_members_are_asked_although_the_volume_claims_cannot_be_read() -> None:
    """Otherwise a group would look broken, or sound, for as long as nobody mends a permission."""
    world = World()
    world.is_down = True
    for silent in ({"n0"}, {"n0", "n1"}):
        world.silent = silent
        with pytest.raises(UnavailableError):
            await world.worker._observe()

        assert {each.self_id for each in (world.snapshot.answers or {}).values()} == (
            {"n0", "n1", "n2"} - silent
        )
        assert await world.worker.loops.wakes["report"].wait(0.01)
