"""A scaler in a world where everything else happens at any time: members die and come back, others
lead, answers are lost, somebody meddles with the StatefulSet, the spec is changed in the midst, the
operator is replaced between any two requests.

Judged after every step: the operator takes no pod from a member, removes no leader, and keeps to
the order; and when it is quiet, the group becomes what the spec asks for.
"""

from collections.abc import Callable
from random import Random

import pytest

from dledger_kube.objects import group
from dledger_kube.scaling_world import ScalingWorld
from dledger_operator import names
from dledger_operator.behaviours.members.scale import Scaler
from dledger_operator.behaviours.report.event_recorder import News
from dledger_operator.clients.errors import ConflictError
from dledger_operator.facts import Electorate

ROUNDS = 60
STEPS_BETWEEN_QUIET = 40
STEPS_TO_BE_DONE_MAX = 120


class Play:
    """The world, the operator, and the chance by which things happen."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        first = self.random.choice([1, 3, 5])
        self.world = ScalingWorld(
            replicas=first, first_voters=first, pods=first,
            voters={names.member_id(k) for k in range(first)}, leader="n0",
        )  # fmt: skip
        self.now_s = 0.0
        self.news: list[News] = []
        self.electorate: Electorate | None = None
        self.removed: set[str] = set()
        self.replace_the_operator()

    def replace_the_operator(self) -> None:
        self.electorate = None
        self.scaler = Scaler(
            self.world, self.world,
            clock=lambda: self.now_s, random=self.random,
            on_members=self.learn, tell=self.news.append,
        )  # fmt: skip

    def learn(self, members: Electorate) -> None:
        self.electorate = members

    async def operate(self) -> None:
        """Let the operator look and take a step, and judge it."""
        world, before = self.world, len(self.world.removed_pods)
        self.now_s += self.random.choice([0.1, 1.0, 20.0])
        leader, asked = world.leader, len(world.requests)
        try:
            await self.scaler.turn(
                group(replicas=world.replicas),
                world.seen(self.electorate),
                world.stateful_set(),
                world.ips(),
            )
        except ConflictError:
            return
        assert not set(world.removed_pods[before:]) & world.members
        assert ("REMOVE", leader) not in world.requests[asked:]
        assert len(world.requests) - asked <= 1

    def change_the_spec(self) -> None:
        self.world.replicas = self.random.choice(names.REPLICAS_ALLOWED)

    def kill(self) -> None:
        self.world.down.add(f"n{self.random.randrange(self.world.pods)}")

    def heal(self) -> None:
        self.world.down.clear()

    def lose_answers(self) -> None:
        self.world.answers_lost = 1

    def fall_behind(self) -> None:
        self.world.behind = set(self.world.learners)

    def catch_up(self) -> None:
        self.world.behind.clear()

    def meddle_with_the_pods(self) -> None:
        self.world.pods = self.random.randint(1, names.REPLICAS_MAX)
        self.world.version += 1

    def elect(self) -> None:
        self.world.elect(f"n{self.random.randrange(self.world.pods)}")

    async def be_quiet(self) -> None:
        """All is well again: the operator has only to go on."""
        world = self.world
        self.heal()
        self.catch_up()
        world.answers_lost = 0
        for _ in range(STEPS_TO_BE_DONE_MAX):
            world.settle()
            await self.operate()
            if self.scaler.at_rest and world.leader is not None:
                break
        wanted = {names.member_id(ordinal) for ordinal in range(world.replicas)}
        assert (world.voters, world.learners, world.pods) == (wanted, set(), world.replicas)
        assert self.scaler.obstacle is None


@pytest.mark.parametrize("seed", range(12))
async def test_no_member_loses_its_pod_and_the_group_becomes_what_is_asked(seed: int) -> None:
    play = Play(seed)
    acts: dict[Callable[[], None], int] = {
        play.change_the_spec: 3,
        play.kill: 3,
        play.heal: 3,
        play.lose_answers: 3,
        play.fall_behind: 2,
        play.catch_up: 2,
        play.meddle_with_the_pods: 1,
        play.elect: 3,
        play.replace_the_operator: 3,
    }
    for _ in range(ROUNDS):
        for _ in range(STEPS_BETWEEN_QUIET):
            if play.random.random() < 0.4:
                play.random.choices(list(acts), list(acts.values()))[0]()
            play.world.settle()
            await play.operate()
        await play.be_quiet()

    assert {"MemberAdded", "MemberPromoted", "MemberRemoved", "LeadershipMoved", "Scaled"} <= {
        each.reason for each in play.news
    }
