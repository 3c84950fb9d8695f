"""A roll and a change of members that are pending together always make progress.

Members of the old revision may be hung (they run and do not answer) or have settings that do not
name the new members; members of the new revision serve. However they are mixed, every member is
rolled and the spec's members vote in the end, and no step takes a majority that there was.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from dledger_kube.objects import group
from dledger_kube.scaling_world import KNOWN, ScalingWorld
from dledger_operator import names
from dledger_operator.behaviors.members.scale import Scaler
from dledger_operator.behaviors.rolls.roll_or_scale import scaling_goes_first
from dledger_operator.behaviors.rolls.roll_state import RollPod, RollState
from dledger_operator.behaviors.rolls.roll_steps import ReplacePod, next_step
from dledger_operator.behaviors.steps import HandOver

TURNS_MAX = 150


@dataclass(slots=True)
class Mixed:
    """A group with a pending roll and a pending change of members."""

    random: Random
    world: ScalingWorld = field(init=False)
    old: set[str] = field(default_factory=set)
    now_s: float = 0.0
    scaler: Scaler = field(init=False)

    def __post_init__(self) -> None:
        first, replicas = (self.random.choice([1, 3, 5]) for _ in range(2))
        voters = {names.member_id(k) for k in range(first)}
        self.world = ScalingWorld(
            replicas=replicas, first_voters=first, pods=first, voters=voters,
            leader=self.random.choice(sorted(voters)),
        )  # fmt: skip
        if replicas > first and self.random.random() < 0.7:  # interrupted while it grew
            self.world.pods = replicas
            self.world.learners = {f"n{first}"} if self.random.random() < 0.5 else set()
        pods = list(KNOWN[: self.world.pods])
        self.old = {each for each in pods if self.random.random() < 0.7}
        self.world.outdated = {each for each in self.old if self.random.random() < 0.5}
        others = sorted(self.old - {self.world.leader or ""})
        voting = [each for each in others if each in voters][: (first - 1) // 2]
        hung = [*voting, *(each for each in others if each not in voters)]
        self.world.down = {each for each in hung if self.random.random() < 0.5}
        self.scaler = Scaler(
            self.world, self.world,
            clock=lambda: self.now_s, random=self.random,
            on_membership=lambda _: None, on_event=lambda _: None,
        )  # fmt: skip

    async def turn(self) -> None:
        """Let scaling and the roll take at most one step each, the first of them at random."""
        self.now_s += 20.0
        self.world.settle()
        if self.random.random() < 0.5:
            await self.scale()
            self.roll()
        else:
            self.roll()
            await self.scale()

    async def scale(self) -> None:
        world = self.world
        await self.scaler.run_once(
            group(replicas=world.replicas), world.state(), world.stateful_set(), world.ips()
        )
        self.old &= set(KNOWN[: world.pods])
        world.settle()

    def roll(self) -> None:
        world = self.world
        wanted = set(KNOWN[: world.replicas])
        scaling = world.voters != wanted or bool(world.learners)
        step = next_step(
            RollState(
                pods=[self.pod(k) for k in range(world.pods)],
                leader_id=world.leader,
                voters=frozenset(world.voters),
                led=True,
                scaling=scaling and scaling_goes_first(self.scaler.problem),
                staying=frozenset(wanted),
            )
        )
        if isinstance(step, ReplacePod):
            member_id = names.member_id(int(step.pod[-1]))
            assert member_id != world.leader or len(world.voters) == 1
            left = {each for each in world.voters - {member_id} if world.up(each)}
            majority = min(len(world.voters) // 2 + 1, len(world.voters) - 1)
            assert len(left) >= majority or member_id not in world.voters
            for of in (self.old, world.outdated, world.down):
                of.discard(member_id)
        elif isinstance(step, HandOver):
            world.leader, world.term = step.to, world.term + 1
        world.settle()

    def pod(self, ordinal: int) -> RollPod:
        """A pod, and what its member says: one that is no member yet is not ready."""
        member_id, world = names.member_id(ordinal), self.world
        serves = world.up(member_id) and member_id in world.members
        return RollPod(
            name=f"flights-{ordinal}", uid=f"uid-{ordinal}", member_id=member_id,
            behind="settings" if member_id in self.old else "", leaving=False, runs=True,
            healthy=serves, blank=False, ready_s=60.0, lag_entries=0 if serves else None,
        )  # fmt: skip

    @property
    def done(self) -> bool:
        wanted = set(KNOWN[: self.world.replicas])
        scaled = self.world.voters == wanted and not self.world.learners
        return scaled and self.world.pods == len(wanted) and not self.old


@pytest.mark.parametrize("seed", range(300))
async def test_any_mix_of_a_pending_roll_and_a_pending_scaling_comes_to_its_end(seed: int) -> None:
    mixed = Mixed(Random(seed))
    for _ in range(TURNS_MAX):
        if mixed.done:
            break
        await mixed.turn()

    assert mixed.done, (mixed.world, mixed.old, mixed.scaler.problem)
