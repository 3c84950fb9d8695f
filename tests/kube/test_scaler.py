"""Carrying out the steps of scaling: requests, Events and retries."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from dledger_kube.objects import group, membership, observed_group
from dledger_kube.scaling_world import ScalingWorld
from dledger_operator.api_objects import StatefulSetView, VolumeClaimView
from dledger_operator.behaviors.members.scale import Scaler
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.clients.errors import ConflictError, RefusedError
from dledger_operator.conditions import progressing
from dledger_operator.observed_state import Membership

FIVE = {"n0", "n1", "n2", "n3", "n4"}


@dataclass
class Scene:
    """A world, a scaler, and the Events and memberships that the scaler reported."""

    world: ScalingWorld
    now_s: float = 0.0
    events: list[EventNote] = field(default_factory=list)
    memberships: list[Membership] = field(default_factory=list)
    scaler: Scaler = field(init=False)

    def __post_init__(self) -> None:
        self.scaler = Scaler(
            self.world, self.world,
            clock=lambda: self.now_s, random=Random(1),
            on_membership=self.memberships.append, on_event=self.events.append,
        )  # fmt: skip

    async def run_once(self) -> bool:
        return await self.scaler.run_once(
            group(replicas=self.world.replicas), self.world.state(), self.world.stateful_set(),
            self.world.ips(), self.world.unwanted_claims(),
        )  # fmt: skip

    @property
    def event_reasons(self) -> list[str]:
        return [each.reason for each in self.events]


async def test_scaling_up_adds_one_member_after_another() -> None:
    scene = Scene(ScalingWorld(replicas=5))

    while await scene.run_once():
        pass

    assert scene.world.requests == [
        ("ADD_LEARNER", "n3"), ("PROMOTE", "n3"), ("ADD_LEARNER", "n4"), ("PROMOTE", "n4"),
    ]  # fmt: skip
    assert scene.event_reasons == [
        "Scaled", "MemberAdded", "MemberPromoted", "MemberAdded", "MemberPromoted",
    ]  # fmt: skip
    assert scene.memberships[-1] == membership(5)
    assert scene.scaler.idle


async def test_scaling_down_deletes_each_pod_after_its_member_is_removed() -> None:
    scene = Scene(ScalingWorld(pods=5, voters=set(FIVE), leader="n3"))

    while await scene.run_once():
        pass

    assert [kind for kind, _ in scene.world.requests] == ["TRANSFER", "REMOVE", "REMOVE"]
    assert scene.event_reasons == [
        "LeadershipMoved",
        "MemberRemoved",
        "Scaled",
        "MemberRemoved",
        "Scaled",
        "VolumeDeleted",
    ]
    assert scene.world.removed_pods == ["n4", "n3"]


async def test_a_removal_without_an_answer_is_requested_again_before_the_pod_is_deleted() -> None:
    scene = Scene(ScalingWorld(pods=5, voters=set(FIVE), answers_lost=1))

    await scene.run_once()
    assert scene.world.voters == FIVE - {"n4"}
    assert scene.world.removed_pods == []
    scene.now_s = 60.0
    await scene.run_once()

    assert scene.world.requests == [("REMOVE", "n4")] * 2
    assert scene.world.removed_pods == ["n4"]


async def test_an_answer_with_the_id_of_no_possible_member_changes_no_membership() -> None:
    scene = Scene(ScalingWorld(replicas=5, pods=5, voters={"n0", "n1", "n2", "n99999999"}))
    asked = replace(scene.world.state(), answers=ScalingWorld(replicas=5, pods=5).state().answers)
    world = scene.world

    await scene.scaler.run_once(group(replicas=5), asked, world.stateful_set(), world.ips())

    assert (world.requests, scene.memberships) == ([("ADD_LEARNER", "n3")], [])
    assert scene.scaler.problem is not None
    assert "no group can have" in scene.scaler.problem.message


async def test_another_operator_deletes_the_pod_of_a_removed_member() -> None:
    world = ScalingWorld(pods=5, voters=set(FIVE))
    first = Scene(world)
    stale = world.stateful_set()
    world.version += 1
    with pytest.raises(ConflictError):
        await first.scaler.run_once(group(), world.state(), stale, world.ips())
    assert (world.voters, world.pods) == (FIVE - {"n4"}, 5)

    second = Scene(world)
    while await second.run_once():
        pass

    assert (world.voters, world.pods) == (membership(3).voters, 3)


@pytest.mark.parametrize(
    ("disturb", "reason", "words"),
    [
        (lambda world: world.behind.add("n3"), "FallBehindTooMuch", "has not caught up yet"),
        (lambda world: world.down.update({"n1", "n2"}), "MemberSilent", "no answer from n1, n2"),
    ],
    ids=["the learner lags", "voters are down"],
)
async def test_the_problem_names_what_blocks_scaling_up(
    disturb: Callable[[ScalingWorld], None], reason: str, words: str
) -> None:
    world = ScalingWorld(replicas=5, pods=5, learners={"n3"}, leader="n0")
    disturb(world)
    scene = Scene(world)

    await scene.run_once()

    assert scene.scaler.problem is not None
    assert scene.scaler.problem.reason == reason
    assert words in scene.scaler.problem.message


async def test_a_refusal_by_the_leader_is_reported_and_no_pod_is_deleted() -> None:
    world = ScalingWorld(replicas=1, leader="n0", down={"n1"})
    scene = Scene(world)
    world.voters = {"n0", "n1", "n2"}

    await scene.run_once()

    assert scene.scaler.problem is not None
    assert scene.scaler.problem.reason == "QuorumAtRisk"
    assert "the leader refuses REMOVE n2: QUORUM_AT_RISK" in scene.scaler.problem.message
    assert "repair the unhealthy ones" in scene.scaler.problem.message
    assert world.removed_pods == []


async def test_a_refused_request_is_retried_with_a_bounded_backoff() -> None:
    scene = Scene(ScalingWorld(replicas=5, pods=5, learners={"n3"}, behind={"n3"}))
    tries: list[float] = []
    while scene.now_s < 120:
        asked = len(scene.world.requests)
        await scene.run_once()
        if len(scene.world.requests) > asked:
            tries.append(scene.now_s)
        scene.now_s += 0.1

    gaps = [later - sooner for sooner, later in itertools.pairwise(tries)]
    assert gaps[0] < 1
    assert 5 <= max(gaps) <= 10.2

    scene.world.behind.clear()
    scene.now_s += 11
    await scene.run_once()
    assert scene.scaler.problem is None
    assert "n3" in scene.world.voters


async def test_a_spec_that_is_changed_back_during_scaling_reverts_the_steps() -> None:
    scene = Scene(ScalingWorld(replicas=5))
    for _ in range(4):
        await scene.run_once()
    assert scene.world.members == {"n0", "n1", "n2", "n3", "n4"}

    scene.world.replicas = 3
    while await scene.run_once():
        pass

    assert (scene.world.members, scene.world.pods) == ({"n0", "n1", "n2"}, 3)


class Guarded(ScalingWorld):
    """A world in which somebody's webhook refuses what the operator asks the API server for."""

    def guard(self, *refused: str) -> None:
        self.refused, self.asked_at_s = refused, list[float]()

    def refuse(self, what: str) -> None:
        if what in self.refused:
            raise RefusedError(f"{what}: a webhook denied the request")

    async def set_replicas(self, stateful_set: StatefulSetView, replicas: int) -> None:
        self.refuse(f"set the replicas to {replicas}")
        await super().set_replicas(stateful_set, replicas)

    async def delete_volume_claim(self, claim: VolumeClaimView) -> None:
        self.refuse(f"delete {claim.name}")
        await super().delete_volume_claim(claim)


@pytest.mark.parametrize(
    ("world", "replicas"),
    [
        (Guarded(hibernate=True), 0),
        (Guarded(replicas=5), 5),
        (Guarded(leader=None, pods=2), 3),
        (Guarded(pods=5, voters=set(FIVE)), 4),
    ],
    ids=["hibernation", "growth", "a missing pod", "a removed member"],
)
async def test_a_step_that_the_api_server_refuses_is_told_and_retried_with_a_growing_pause(
    world: Guarded, replicas: int
) -> None:
    world.guard(f"set the replicas to {replicas}")
    scene, tries = Scene(world), list[float]()

    while scene.now_s < 60.0:
        if await scene.run_once():
            tries.append(scene.now_s)
        scene.now_s += 0.5

    assert scene.scaler.problem is not None
    assert scene.scaler.problem.reason == "RequestRefused"
    assert f"set the replicas to {replicas}: a webhook denied" in scene.scaler.problem.message
    assert len(tries) <= 15
    assert scene.event_reasons in ([], ["MemberRemoved"])
    world.guard()
    scene.now_s += 60.0
    await scene.run_once()
    assert (world.pods, scene.scaler.problem) == (replicas, None)


async def test_a_volume_claim_that_may_not_be_deleted_is_told_and_the_others_are_deleted() -> None:
    world = Guarded(claims={0, 1, 2, 3, 4})
    world.guard("delete data-flights-3")
    scene = Scene(world)

    await scene.run_once()

    assert world.claims == {0, 1, 2, 3}
    assert scene.event_reasons == ["VolumeDeleted"]
    problem = scene.scaler.problem
    assert problem is not None
    verdict = progressing.judge(observed_group(scaling_problem=problem))
    assert (verdict.holds, verdict.reason) == (False, "AsRequested")
    assert verdict.message.endswith("; delete data-flights-3: a webhook denied the request")
