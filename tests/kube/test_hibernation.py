"""A group that hibernates has no pods and loses nothing, and wakes as the group that it was.

The code is the operator's; the StatefulSet and the members are fake.
"""

import contextlib
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from dledger_kube.objects import NOW, group, group_body, member, membership, observed_group, pod
from dledger_kube.replace_world import ReplaceWorld, replace_body
from dledger_kube.scaling_world import ScalingWorld
from dledger_operator import names
from dledger_operator.behaviors.members.observed_members import MemberJudge, MemberReads
from dledger_operator.behaviors.members.scale import Scaler
from dledger_operator.behaviors.members.scale_steps import next_step
from dledger_operator.behaviors.replacement.replacement import ReplaceWorker
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.behaviors.steps import SetPods, Wait
from dledger_operator.clients.errors import ConflictError, MemberSilentError
from dledger_operator.conditions import degraded, progressing, quorum_healthy, ready
from dledger_operator.observed_state import Membership, ObservedGroup
from dledger_operator.problem import Problem

TURNS_MAX = 150


def test_a_healthy_group_hibernates_in_one_step() -> None:
    assert next_step(ScalingWorld(hibernate=True).state()) == SetPods(replicas=0)


def test_a_group_that_hibernates_is_left_alone() -> None:
    world = ScalingWorld(hibernate=True, pods=0, leader=None)

    assert next_step(world.state()) is None


def test_a_group_wakes_with_all_its_members() -> None:
    world = ScalingWorld(pods=0, leader=None)

    assert next_step(world.state()) == SetPods(replicas=3)


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no leader": ({"leader": None}, "NoLeader", "hibernation need a leader, and there is none"),
    "a silent voter": ({"down": {"n2"}}, "MemberSilent", "no answer from n2; hibernation needs"),
    "a voter that does not serve": ({"unready": {"n0"}}, "MemberNotReady", "n0 is not ready"),
    "a voter that lags": ({"lags": {"n2": 1001}}, "MemberLags", "n2 lacks more than 1000 entries"),
    "a roll": ({"rolling": True}, "RollUnderWay", "pods are being replaced; the group hibernates"),
}


@pytest.mark.parametrize(("state", "reason", "words"), REFUSED.values(), ids=REFUSED)
def test_hibernation_waits_in_words_while_something_is_at_risk(
    state: dict[str, Any], reason: str, words: str
) -> None:
    step = next_step(ScalingWorld(hibernate=True, **state).state())

    assert isinstance(step, Wait)
    assert step.reason == reason
    assert words in step.message


def test_a_change_of_members_goes_first() -> None:
    world = ScalingWorld(hibernate=True, replicas=5)

    assert next_step(world.state()) == SetPods(replicas=5)


class Play:
    """The world, the operator, and the random choices between them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = ScalingWorld(claims={0, 1, 2})
        self.now_s = 0.0
        self.events: list[EventNote] = []
        self.replace_the_operator()

    def replace_the_operator(self) -> None:
        self.membership: Membership | None = None
        self.scaler = Scaler(
            self.world, self.world,
            clock=lambda: self.now_s, random=self.random,
            on_membership=lambda _: None, on_event=self.events.append,
        )  # fmt: skip

    async def operate(self) -> None:
        """Let the operator take one step, and check it."""
        world, pods, members = self.world, self.world.pods, set(self.world.members)
        self.now_s += self.random.choice([0.1, 1.0, 20.0])
        safe = world.leader is not None and all(map(world.up, world.voters))
        late = world.lags.keys() & (world.voters - {world.leader})
        safe = safe and not late and not world.rolling and world.hibernate
        try:
            await self.scaler.run_once(
                group(replicas=world.replicas),
                world.state(),
                world.stateful_set(),
                world.ips(),
                world.unwanted_claims(),
            )
        except ConflictError:
            return
        if world.pods == 0 < pods:
            assert safe, "all pods went although something was at risk"
            assert world.members == members
        assert {names.ordinal(each) for each in world.voters} <= world.claims, "volumes stay"

    def disturb(self) -> None:
        """Let one thing happen that the operator has not asked for."""
        world = self.world
        what = self.random.randrange(9)
        if what == 0:
            world.hibernate = not world.hibernate
        elif what == 1 and world.pods:
            world.down.add(f"n{self.random.randrange(world.pods)}")
        elif what == 2:
            world.down.clear()
        elif what == 3:
            world.lags = {} if world.lags else {"n2": 5000}
        elif what == 4:
            world.rolling = not world.rolling
        elif what == 5:
            world.answers_lost = 1
        elif what == 6:
            world.replicas = self.random.choice((1, 3, 5))
        elif what == 7:
            world.version += 1
        else:
            self.replace_the_operator()

    async def finish(self, *, hibernate: bool) -> None:
        """End all disturbances, and let the operator bring the group to its spec."""
        world = self.world
        world.down.clear()
        world.lags, world.rolling, world.answers_lost = {}, False, 0
        world.hibernate = hibernate
        for _ in range(TURNS_MAX):
            world.settle()
            await self.operate()
            if self.scaler.idle and (world.pods == 0) == hibernate:
                break
        wanted = {names.member_id(ordinal) for ordinal in range(world.replicas)}
        assert world.pods == (0 if hibernate else world.replicas)
        if not hibernate:
            assert (world.voters, world.learners) == (wanted, set())
        assert self.scaler.problem is None


@pytest.mark.parametrize("seed", range(30))
async def test_any_mix_of_sleep_and_trouble_ends_as_the_spec_asks_and_loses_no_member(
    seed: int,
) -> None:
    play = Play(seed)
    for turn in range(40):
        for _ in range(20):
            if play.random.random() < 0.5:
                play.disturb()
            play.world.settle()
            await play.operate()
        await play.finish(hibernate=turn % 2 == 0)

    assert {"Hibernated", "Woken"} <= {each.reason for each in play.events}


def test_the_conditions_say_that_a_group_hibernates() -> None:
    asleep = [
        member(ordinal, exists=False, ready=False, status=None, reason="the pod does not exist")
        for ordinal in range(3)
    ]
    observed = observed_group(hibernate=True, leader=None, members=tuple(asleep))

    for judged in (ready, quorum_healthy, degraded, progressing):
        verdict = judged.judge(observed)
        assert (verdict.holds, verdict.reason) == (False, "Hibernated")
    assert "set it to false to wake the group" in ready.judge(observed).message


def test_a_majority_that_ends_on_purpose_is_no_loss() -> None:
    leaving = [
        member(ordinal, leaving=True, ready=False, reason="the pod is terminating")
        for ordinal in range(3)
    ]

    asleep = quorum_healthy.judge(observed_group(hibernate=True, members=tuple(leaving)))
    awake = quorum_healthy.judge(observed_group(members=tuple(leaving)))

    assert (asleep.holds, asleep.reason) == (False, "Hibernating")
    assert (awake.holds, awake.reason) == (False, "QuorumLost")


def test_pods_that_end_before_the_group_falls_asleep_hide_neither_a_loss_nor_the_cause() -> None:
    """The pods of two members end on nodes that are gone, or are replaced."""
    members = [
        member(ordinal, leaving=ordinal > 0, ready=False, reason="gone") for ordinal in range(3)
    ]
    waits = Problem(reason="NoLeader", message="hibernation needs a leader")
    observed = observed_group(hibernate=True, members=tuple(members), scaling_problem=waits)

    lost, progress = quorum_healthy.judge(observed), progressing.judge(observed)

    assert (lost.holds, lost.reason) == (False, "QuorumLost")
    assert (progress.holds, progress.reason) == (True, "NoLeader")
    assert progress.message == "the group is to hibernate; hibernation needs a leader"


def test_a_group_that_is_to_hibernate_says_what_it_waits_for() -> None:
    verdict = progressing.judge(observed_group(hibernate=True))

    assert (verdict.holds, verdict.reason) == (True, "Hibernating")


def test_a_paused_group_that_is_to_hibernate_says_that_it_is_paused() -> None:
    verdict = progressing.judge(observed_group(hibernate=True, paused=True))

    assert (verdict.holds, verdict.reason) == (True, "Paused")
    assert verdict.message == "the group is to hibernate; spec.paused is true"


def falling_asleep(late: timedelta) -> ObservedGroup:
    """A group of which only n2 has a pod, whose end is this late."""
    pods = [pod(2, leaving=True, ready=False, node="worker-2", ends_by=NOW - late)]
    spec = group(replicas=3)
    seen = MemberJudge(spec, membership(3), now=NOW).members(MemberReads(pods))
    return observed_group(hibernate=True, leader=None, members=seen)


def test_a_member_that_never_stops_is_named_with_its_node_and_the_cure() -> None:
    observed = falling_asleep(timedelta(seconds=40))

    for judged in (progressing, degraded):
        verdict = judged.judge(observed)
        assert (verdict.holds, verdict.reason) == (True, "PodTerminating")
        assert "pod flights-2 on node worker-2 should have ended by" in verdict.message
        assert "delete its Node, or give it the taint" in verdict.message
    assert "flights-2 has not ended yet" in progressing.judge(observed).message


def test_a_member_that_is_stopping_has_until_its_kubelet_would_have_killed_it() -> None:
    verdict = progressing.judge(falling_asleep(timedelta(seconds=10)))

    assert (verdict.holds, verdict.reason) == (True, "Hibernating")
    assert verdict.message == "the group is to hibernate; flights-2 has not ended yet"


def sleepy(hibernate: bool) -> dict[str, Any]:
    return group_body({"hibernate": hibernate})


async def after_the_removal(world: ReplaceWorld) -> ReplaceWorker:
    """Lose the volume of n2, and return the worker of a replacement that has deleted its claim."""
    world.members["n2"].lose()
    world.objects["renew-uid"] = replace_body()
    worker = world.worker("renew-uid")
    while not world.deleted:
        await worker._run_once()
    return worker


async def would_hibernate(world: ReplaceWorld) -> bool:
    """Return whether scaling would remove all pods now."""
    answers = {}
    for number, each in enumerate(world.members):
        with contextlib.suppress(MemberSilentError):
            answers[each] = await world.status_of(f"127.0.0.{number + 1}")
    state = replace(ScalingWorld(hibernate=True, leader=world.leader).state(), answers=answers)
    return next_step(state) == SetPods(replicas=0)


async def test_a_replacement_that_has_removed_a_volume_ends_before_the_group_hibernates() -> None:
    """Hibernation waits for the member whose volume is gone, so the replacement must not wait."""
    world = ReplaceWorld.of(3)
    worker = await after_the_removal(world)
    world.group = sleepy(hibernate=True)

    for _ in range(TURNS_MAX):
        assert worker.ended() or not await would_hibernate(world)
        if worker.ended():
            break
        world.pass_time(1)
        await worker._run_once()

    assert world.outcome("renew-uid") == ("Succeeded", "Replaced")
    assert await would_hibernate(world)


async def test_a_replacement_in_a_group_that_has_fallen_asleep_waits_until_it_wakes() -> None:
    """The member has come back for a moment, so that all voters were ready."""
    world = ReplaceWorld.of(3)
    worker = await after_the_removal(world)
    world.group, world.asleep = sleepy(hibernate=True), True
    world.pass_time(1)
    await worker._run_once()
    assert world.outcome("renew-uid")[1] == "Hibernated"

    world.group, world.asleep = sleepy(hibernate=False), False
    for _ in range(TURNS_MAX):
        if not worker.ended():
            world.pass_time(1)
            await worker._run_once()

    assert world.outcome("renew-uid") == ("Succeeded", "Replaced")
