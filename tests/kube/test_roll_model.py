"""A model test of rolls under random disturbances: members fail and recover, the leader changes,
answers are lost, the spec changes to good and bad images during a roll, and the operator is killed
and replaced between any two requests.

Checked at every replacement: the members that are left are a majority, or the member was down; and
the member does not lead. A bad image costs at most one member that served. Once the disturbances
stop, every pod gets the image of the spec, and each is replaced once.
"""

from collections.abc import Callable
from random import Random

import pytest

from dledger_kube.objects import group
from dledger_kube.rolling_world import BAD, RollingWorld
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.behaviors.rolls.roll import Roller
from dledger_operator.observed_state import Membership

ROUNDS = 40
STEPS_BETWEEN_QUIET = 40
STEPS_TO_BE_DONE_MAX = 400


class Play:
    """The world, the operator, and the random choices between them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = RollingWorld(size=self.random.choice([1, 3, 5]))
        self.images = 1
        self.events: list[EventNote] = []
        self.lost_to_bad: dict[str, int] = {}
        self.replace_the_operator()

    def replace_the_operator(self) -> None:
        world = self.world
        self.roller = Roller(
            world, world,
            ask=world.ask, why_emptied=world.why_emptied, clock=lambda: world.now_s,
            random=self.random, on_event=self.events.append,
        )  # fmt: skip

    async def operate(self) -> float | None:
        """Let the operator take one step, and check it."""
        world, before = self.world, len(self.world.replaced)
        majorities = {k: world.has_majority_without(k) for k in range(world.size)}
        again_s = await self.roller.run_once(
            group(replicas=world.size),
            world.wanted,
            Membership(voters=frozenset(f"n{k}" for k in range(world.size))),
            identity="",
            led=True,
            scaling=False,
        )
        steps = world.replaced[before:]
        assert len(steps) <= 1
        for ordinal, served, image in steps:
            assert world.size == 1 or majorities[ordinal] or not served
            assert world.size == 1 or world.leader != f"n{ordinal}" or not served
            if BAD in image and served:
                self.lost_to_bad[image] = self.lost_to_bad.get(image, 0) + 1
        assert all(count == 1 for count in self.lost_to_bad.values())
        return again_s

    def change_the_spec(self) -> None:
        self.images += 1
        self.world.image = f"{self.random.choice(['node', 'node', BAD])}:{self.images}"

    def fail(self) -> None:
        serving = [k for k in range(self.world.size) if self.world.serves(k)]
        if serving:
            self.world.pods[self.random.choice(serving)].down = True

    def recover(self) -> None:
        for each in self.world.pods.values():
            each.down = False

    def lose_an_answer(self) -> None:
        self.world.answers_lost = 1

    def fall_behind(self) -> None:
        self.world.settle()
        self.random.choice(list(self.world.pods.values())).behind_entries = 5_000

    def catch_up(self) -> None:
        for each in self.world.pods.values():
            each.behind_entries = 0

    def elect(self) -> None:
        self.world.settle()
        able = [f"n{k}" for k in range(self.world.size) if self.world.serves(k)]
        if self.world.leader is not None:
            self.world.leader, self.world.term = self.random.choice(able), self.world.term + 1

    async def finish(self) -> None:
        """End all disturbances with a good spec, and let the operator roll it out."""
        self.recover()
        self.catch_up()
        self.world.answers_lost = 0
        self.world.settle()
        self.images += 1
        self.world.image, begin = f"node:{self.images}", len(self.world.replaced)
        for _ in range(STEPS_TO_BE_DONE_MAX):
            self.world.pass_time(self.random.choice([0.5, 2.0]))
            if await self.operate() is None and self.world.leader is not None:
                break
        assert {each.image for each in self.world.pods.values()} == {self.world.image}
        assert self.world.leader is not None
        assert self.roller.problem is None
        replaced = [ordinal for ordinal, _, _ in self.world.replaced[begin:]]
        assert sorted(replaced) == list(range(self.world.size)), "each pod once"


@pytest.mark.parametrize("seed", range(12))
async def test_a_roll_keeps_the_majority_and_ends_wherever_the_operator_is_killed(
    seed: int,
) -> None:
    play = Play(seed)
    acts: dict[Callable[[], None], int] = {
        play.change_the_spec: 2,
        play.fail: 2,
        play.recover: 3,
        play.lose_an_answer: 3,
        play.fall_behind: 1,
        play.catch_up: 2,
        play.elect: 2,
        play.replace_the_operator: 3,
    }
    for _ in range(ROUNDS):
        for _ in range(STEPS_BETWEEN_QUIET):
            if play.random.random() < 0.3:
                play.random.choices(list(acts), list(acts.values()))[0]()
            play.world.pass_time(play.random.choice([0.0, 1.0, 6.0]))
            await play.operate()
        await play.finish()

    told = {each.reason for each in play.events}
    assert {"PodReplaced", "RollCompleted"} <= told
    assert play.world.size == 1 or ("RollHalted" in told and play.world.transfers > 0)
