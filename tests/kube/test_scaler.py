"""Taking the steps of scaling: what is asked, told and tried again."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from dledger_kube.objects import electorate, group
from dledger_kube.scaling_world import ScalingWorld
from dledger_operator.behaviours.members.scale import Scaler
from dledger_operator.behaviours.report.event_recorder import News
from dledger_operator.clients.errors import ConflictError
from dledger_operator.facts import Electorate

FIVE = {"n0", "n1", "n2", "n3", "n4"}


@dataclass
class Scene:
    """A world, a scaler, and what that told."""

    world: ScalingWorld
    now_s: float = 0.0
    news: list[News] = field(default_factory=list)
    heard: list[Electorate] = field(default_factory=list)
    scaler: Scaler = field(init=False)

    def __post_init__(self) -> None:
        self.scaler = Scaler(
            self.world, self.world,
            clock=lambda: self.now_s, random=Random(1),
            on_members=self.heard.append, tell=self.news.append,
        )  # fmt: skip

    async def turn(self) -> bool:
        return await self.scaler.turn(
            group(replicas=self.world.replicas), self.world.seen(), self.world.stateful_set(),
            self.world.ips(),
        )  # fmt: skip

    @property
    def told(self) -> list[str]:
        return [each.reason for each in self.news]


async def test_a_group_grows_one_member_after_another() -> None:
    scene = Scene(ScalingWorld(replicas=5))

    while await scene.turn():
        pass

    assert scene.world.requests == [
        ("ADD_LEARNER", "n3"), ("PROMOTE", "n3"), ("ADD_LEARNER", "n4"), ("PROMOTE", "n4"),
    ]  # fmt: skip
    assert scene.told == [
        "Scaled", "MemberAdded", "MemberPromoted", "MemberAdded", "MemberPromoted",
    ]  # fmt: skip
    assert scene.heard[-1] == electorate(5)
    assert scene.scaler.at_rest


async def test_a_group_shrinks_with_each_pod_behind_its_member() -> None:
    scene = Scene(ScalingWorld(pods=5, voters=set(FIVE), leader="n3"))

    while await scene.turn():
        pass

    assert [kind for kind, _ in scene.world.requests] == ["TRANSFER", "REMOVE", "REMOVE"]
    assert scene.told == ["LeadershipMoved", "MemberRemoved", "Scaled", "MemberRemoved", "Scaled"]
    assert scene.world.removed_pods == ["n4", "n3"]


async def test_a_removal_of_which_nobody_heard_is_asked_for_again_before_the_pod_goes() -> None:
    scene = Scene(ScalingWorld(pods=5, voters=set(FIVE), answers_lost=1))

    await scene.turn()
    assert scene.world.voters == FIVE - {"n4"}
    assert scene.world.removed_pods == []
    scene.now_s = 60.0
    await scene.turn()

    assert scene.world.requests == [("REMOVE", "n4")] * 2
    assert scene.world.removed_pods == ["n4"]


async def test_an_operator_that_ended_between_a_removal_and_its_pod_is_followed_by_another() -> (
    None
):
    world = ScalingWorld(pods=5, voters=set(FIVE))
    first = Scene(world)
    meddled = world.stateful_set()
    world.version += 1
    with pytest.raises(ConflictError):
        await first.scaler.turn(group(), world.seen(), meddled, world.ips())
    assert (world.voters, world.pods) == (FIVE - {"n4"}, 5)

    second = Scene(world)
    while await second.turn():
        pass

    assert (world.voters, world.pods) == (electorate(3).voters, 3)


@pytest.mark.parametrize(
    ("spoil", "reason", "words"),
    [
        (lambda world: world.behind.add("n3"), "FallBehindTooMuch", "it has yet to catch up"),
        (lambda world: world.down.update({"n1", "n2"}), "MemberSilent", "no answer from n1, n2"),
    ],
    ids=["it lags", "voters are down"],
)
async def test_what_is_in_the_way_of_growing_is_told(
    spoil: Callable[[ScalingWorld], None], reason: str, words: str
) -> None:
    world = ScalingWorld(replicas=5, pods=5, learners={"n3"}, leader="n0")
    spoil(world)
    scene = Scene(world)

    await scene.turn()

    assert scene.scaler.obstacle is not None
    assert scene.scaler.obstacle.reason == reason
    assert words in scene.scaler.obstacle.message


async def test_a_leader_that_sees_the_quorum_at_risk_is_heeded_and_its_word_is_told() -> None:
    world = ScalingWorld(replicas=1, leader="n0", down={"n1"})
    scene = Scene(world)
    world.voters = {"n0", "n1", "n2"}

    await scene.turn()

    assert scene.scaler.obstacle is not None
    assert scene.scaler.obstacle.reason == "QuorumAtRisk"
    assert "the leader refuses to REMOVE n2" in scene.scaler.obstacle.message
    assert "heal those that are not" in scene.scaler.obstacle.message
    assert world.removed_pods == []


async def test_what_was_refused_is_tried_again_later_and_later_but_not_too_late() -> None:
    scene = Scene(ScalingWorld(replicas=5, pods=5, learners={"n3"}, behind={"n3"}))
    tries: list[float] = []
    while scene.now_s < 120:
        asked = len(scene.world.requests)
        await scene.turn()
        if len(scene.world.requests) > asked:
            tries.append(scene.now_s)
        scene.now_s += 0.1

    gaps = [later - sooner for sooner, later in itertools.pairwise(tries)]
    assert gaps[0] < 1
    assert 5 <= max(gaps) <= 10.2

    scene.world.behind.clear()
    scene.now_s += 11
    await scene.turn()
    assert scene.scaler.obstacle is None
    assert "n3" in scene.world.voters


async def test_a_spec_that_is_changed_back_in_the_midst_takes_back_what_was_done() -> None:
    scene = Scene(ScalingWorld(replicas=5))
    for _ in range(4):
        await scene.turn()
    assert scene.world.members == {"n0", "n1", "n2", "n3", "n4"}

    scene.world.replicas = 3
    while await scene.turn():
        pass

    assert (scene.world.members, scene.world.pods) == ({"n0", "n1", "n2"}, 3)
