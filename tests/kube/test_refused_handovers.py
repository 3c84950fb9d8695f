"""A leader that refuses to hand over to one member is asked to hand over to another one."""

from random import Random

import pytest

from dledger_formats.protocol.codes import DLedgerResponseCode as Code
from dledger_formats.protocol.leadership_transfer import LeadershipTransferResponse
from dledger_kube.objects import group
from dledger_kube.rolling_world import RollingWorld
from dledger_kube.scaling_world import ScalingWorld
from dledger_operator.behaviors.members.scale import Scaler
from dledger_operator.behaviors.refusals import Refusals
from dledger_operator.behaviors.rolls.roll import Roller
from dledger_operator.observed_state import Leader, Membership


class RollingPastOne(RollingWorld):
    """A group with a member that serves, but does not stand when the leader hands over to it."""

    never_stands = "n1"

    async def transfer(
        self, ip: str, group: str, leader: Leader, to: str, *, identity: str = ""
    ) -> LeadershipTransferResponse:
        if to == self.never_stands:
            return LeadershipTransferResponse(code=Code.TAKE_LEADERSHIP_FAILED)
        return await super().transfer(ip, group, leader, to, identity=identity)


async def test_a_roll_goes_on_although_a_member_does_not_take_the_leadership() -> None:
    world = RollingPastOne(size=3)
    roller = Roller(
        world, world, ask=world.ask, why_emptied=world.why_emptied,
        clock=lambda: world.now_s, random=Random(1), on_event=lambda _: None,
    )  # fmt: skip
    world.leader, world.image = "n0", "node:2"

    for _ in range(20):
        await roller.run_once(
            group(replicas=3), world.wanted, Membership(voters=frozenset({"n0", "n1", "n2"})),
            identity="", led=True, scaling=False,
        )  # fmt: skip
        world.pass_time(60.0)

    assert [ordinal for ordinal, _, _ in world.replaced] == [2, 1, 0]
    assert world.leader == "n2"


class ShrinkingPastOne(ScalingWorld):
    """A group with a member that serves, but does not stand when the leader hands over to it."""

    never_stands = "n0"

    async def transfer(
        self, ip: str, group: str, leader: Leader, to: str, *, identity: str = ""
    ) -> LeadershipTransferResponse:
        if to == self.never_stands:
            self.requests.append(("TRANSFER", to))
            return LeadershipTransferResponse(code=Code.TAKE_LEADERSHIP_FAILED)
        return await super().transfer(ip, group, leader, to, identity=identity)


async def test_a_group_shrinks_although_a_member_does_not_take_the_leadership() -> None:
    world, now_s = ShrinkingPastOne(pods=5, voters={f"n{k}" for k in range(5)}, leader="n4"), 0.0
    scaler = Scaler(
        world, world, clock=lambda: now_s, random=Random(1),
        on_membership=lambda _: None, on_event=lambda _: None,
    )  # fmt: skip

    for _ in range(20):
        await scaler.run_once(
            group(replicas=3), world.state(), world.stateful_set(), world.ips(), []
        )
        now_s += 60.0

    assert world.requests[:2] == [("TRANSFER", "n0"), ("TRANSFER", "n1")]
    assert (world.pods, world.voters) == (3, {"n0", "n1", "n2"})


def test_a_refusal_counts_only_for_the_leader_that_refused_last() -> None:
    refusals = Refusals()
    refusals.add("n0", "n1")
    refusals.add("n0", "n1")
    refusals.add("n0", "n2")
    assert refusals.of("n0") == {"n1": 2, "n2": 1}
    assert refusals.of("n2") == {}
    assert refusals.of(None) == {}

    refusals.add("n2", "n0")
    assert (refusals.of("n0"), refusals.of("n2")) == ({}, {"n0": 1})


@pytest.mark.parametrize("leader_id", ["n0", None])
def test_nothing_is_refused_before_the_first_refusal(leader_id: str | None) -> None:
    assert Refusals().of(leader_id) == {}
