"""A spec that the watch has not told yet is in the status, and in the steps, as one that it has."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger_kube.applied import Applied
from dledger_kube.objects import group, group_body, pod
from dledger_kube.worker_context import unconnected
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.group_worker import GroupWorker
from dledger_operator.behaviors.lasting_failure import LASTS_S
from dledger_operator.behaviors.leader.role_labeler import FollowResult
from dledger_operator.behaviors.report.group_reporter import GATHERING_S_MAX
from dledger_operator.clients.errors import UnavailableError
from dledger_operator.observed_state import Leader, Membership
from dledger_operator.resources import children
from dledger_operator.spec.shape import Shape


def body_of(generation: int, spec: dict[str, Any]) -> dict[str, Any]:
    made = group_body(spec)
    made["metadata"]["generation"] = generation
    return made


class Server(Applied):
    """An API server whose watch of groups tells nothing; `body` is what it has."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.body, self.fails, self.status = body, False, dict[str, Any]()

    async def group(self, namespace: str, name: str) -> dict[str, Any]:
        return self.body

    async def apply(self, manifest: Manifest) -> None:
        if self.fails:
            raise UnavailableError("failed calling webhook")
        await super().apply(manifest)

    async def apply_status(self, kind: str, body: Mapping[str, Any], status: Manifest) -> None:
        self.status = status


class World:
    """A worker of a group of three members, which the watch told of with generation 4."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.told = body_of(4, {"replicas": 3})
        self.server = Server(self.told)
        context = cast("Any", unconnected(self.server))
        context.clock = lambda: self.now_s
        context.events = SimpleNamespace(record=self._record)
        self.worker = GroupWorker(self.told, context, lambda: None)
        snapshot = self.worker._snapshot
        snapshot.membership = Membership(voters=frozenset(("n0", "n1", "n2")))
        wanted = children.revision(group(), Shape.of_new(3))
        snapshot.history.leader = Leader(term=3, member_id="n0")
        snapshot.followed = FollowResult(
            pods=tuple(pod(each, revision=wanted) for each in range(3)),
            leader=snapshot.history.leader,
            labeled=snapshot.history.leader,
        )

    async def _record(self, *_: object) -> None:
        """Record no Event."""

    @property
    def replicas(self) -> int:
        group = self.worker._snapshot.group
        assert group is not None
        return group.replicas

    async def condition(self, kind: str) -> tuple[int, str, str]:
        """Return the observed generation, the status and the reason in the next report."""
        self.now_s += GATHERING_S_MAX + 1
        await self.worker._report()
        (found,) = (each for each in self.server.status["conditions"] if each["type"] == kind)
        assert found["observedGeneration"] == self.server.status["observedGeneration"]
        return found["observedGeneration"], found["status"], found["reason"]


@pytest.fixture
def world() -> World:
    return World()


async def test_conditions_describe_the_generation_that_they_name(world: World) -> None:
    await world.worker._reconcile()
    assert await world.condition("Progressing") == (4, "False", "AsRequested")

    world.server.body = body_of(5, {"replicas": 5})
    await world.worker._reconcile()

    assert await world.condition("Progressing") == (5, "True", "Growing")


async def test_a_pause_that_the_watch_has_not_told_is_in_force_and_in_the_status(
    world: World,
) -> None:
    world.server.body = body_of(5, {"replicas": 3, "paused": True})
    await world.worker._reconcile()

    assert await world.condition("Paused") == (5, "True", "PausedByUser")
    assert world.worker._snapshot.group is not None
    assert world.worker._snapshot.group.paused


async def test_conditions_describe_a_generation_that_cannot_be_applied(world: World) -> None:
    await world.worker._reconcile()
    world.server.body, world.server.fails = body_of(5, {"replicas": 5}), True
    for _ in range(2):
        with pytest.raises(UnavailableError):
            await world.worker._reconcile()
        world.now_s += LASTS_S

    assert await world.condition("Ready") == (5, "False", "ReconcileFailed")
    assert (await world.condition("Progressing"))[2] != "AsRequested"


async def test_steps_are_taken_for_a_spec_that_the_watch_has_not_told(world: World) -> None:
    asked = []

    async def stateful_set(*_: object) -> None:
        asked.append("stateful_set")

    world.server.body = body_of(5, {"replicas": 5})
    await world.worker._reconcile()
    cast("Any", world.server).stateful_set = stateful_set
    await world.worker._scale()

    assert asked == ["stateful_set"], "the spec in force is that of the object"


async def test_a_late_event_does_not_bring_an_older_spec_back(world: World) -> None:
    world.server.body = body_of(5, {"replicas": 5})
    await world.worker._reconcile()

    world.worker.changed(body_of(4, {"replicas": 3}))
    assert world.replicas == 5
    world.worker.changed(body_of(6, {"replicas": 7}))
    assert world.replicas == 7
