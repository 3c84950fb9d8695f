"""A model test of scaling under random disturbances: members fail and recover, the leader changes,
answers are lost, another client edits the StatefulSet, the spec changes during scaling, and the
operator is replaced between any two requests.

Checked after every step: the operator deletes no pod and no volume claim of a member, removes no
leader, and sends at most one request. Once the disturbances stop, the group must reach its spec.
"""

from collections.abc import Callable
from random import Random

import pytest

from dledger_kube.objects import group
from dledger_kube.scaling_world import ScalingWorld
from dledger_operator import names
from dledger_operator.behaviors.members.scale import Scaler
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.clients.errors import ConflictError
from dledger_operator.observed_state import Membership

ROUNDS = 60
STEPS_BETWEEN_QUIET = 40
STEPS_TO_BE_DONE_MAX = 120


class Play:
    """The world, the operator, and the random choices between them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        first = self.random.choice([1, 3, 5])
        self.world = ScalingWorld(
            replicas=first, first_voters=first, pods=first,
            voters={names.member_id(k) for k in range(first)}, leader="n0",
            claims=set(range(first)),
        )  # fmt: skip
        self.now_s = 0.0
        self.events: list[EventNote] = []
        self.membership: Membership | None = None
        self.removed: set[str] = set()
        self.replace_the_operator()

    def replace_the_operator(self) -> None:
        self.membership = None
        self.scaler = Scaler(
            self.world, self.world,
            clock=lambda: self.now_s, random=self.random,
            on_membership=self.learn, on_event=self.events.append,
        )  # fmt: skip

    def learn(self, members: Membership) -> None:
        self.membership = members

    async def operate(self) -> None:
        """Let the operator take one step, and check it."""
        world, before = self.world, len(self.world.removed_pods)
        self.now_s += self.random.choice([0.1, 1.0, 20.0])
        leader, asked = world.leader, len(world.requests)
        try:
            await self.scaler.run_once(
                group(replicas=world.replicas),
                world.state(self.membership),
                world.stateful_set(),
                world.ips(),
                world.unwanted_claims(),
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

    def change_the_replicas(self) -> None:
        self.world.pods = self.random.randint(1, names.REPLICAS_MAX)
        self.world.claims |= set(range(self.world.pods))
        self.world.version += 1

    def elect(self) -> None:
        self.world.elect(f"n{self.random.randrange(self.world.pods)}")

    async def finish(self) -> None:
        """End all disturbances, and let the operator bring the group to its spec."""
        world = self.world
        self.heal()
        self.catch_up()
        world.answers_lost = 0
        for _ in range(STEPS_TO_BE_DONE_MAX):
            world.settle()
            await self.operate()
            if self.scaler.idle and world.leader is not None:
                break
        wanted = {names.member_id(ordinal) for ordinal in range(world.replicas)}
        assert (world.voters, world.learners, world.pods) == (wanted, set(), world.replicas)
        assert world.claims == set(range(world.replicas)), "only removed members lose their claims"
        assert self.scaler.problem is None


@pytest.mark.parametrize("seed", range(12))
async def test_no_member_loses_its_pod_and_the_group_reaches_its_spec(seed: int) -> None:
    play = Play(seed)
    acts: dict[Callable[[], None], int] = {
        play.change_the_spec: 3,
        play.kill: 3,
        play.heal: 3,
        play.lose_answers: 3,
        play.fall_behind: 2,
        play.catch_up: 2,
        play.change_the_replicas: 1,
        play.elect: 3,
        play.replace_the_operator: 3,
    }
    for _ in range(ROUNDS):
        for _ in range(STEPS_BETWEEN_QUIET):
            if play.random.random() < 0.4:
                play.random.choices(list(acts), list(acts.values()))[0]()
            play.world.settle()
            await play.operate()
        await play.finish()

    assert {"MemberAdded", "MemberPromoted", "MemberRemoved", "LeadershipMoved", "Scaled"} <= {
        each.reason for each in play.events
    }
