"""What a roller waits for and says, against a fake group."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from dledger_kube.objects import group, pod
from dledger_kube.rolling_world import BAD, HUNG, RollingWorld
from dledger_operator.api_objects import CreationFailure, PodView
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.behaviors.rolls.readiness import LastProblems
from dledger_operator.behaviors.rolls.roll import Roller
from dledger_operator.clients.errors import RefusedError
from dledger_operator.observed_state import Membership
from dledger_operator.problem import Problem
from dledger_operator.spec.revision import Revision


class Rolling:
    """A roller and its world."""

    def __init__(self, size: int = 3, world: RollingWorld | None = None) -> None:
        self.world, self.events = world or RollingWorld(size=size), list[EventNote]()
        self.roller = Roller(
            self.world, self.world,
            ask=self.world.ask, why_emptied=self.world.why_emptied, clock=lambda: self.world.now_s,
            random=Random(1), on_event=self.events.append,
        )  # fmt: skip

    async def step(self, passing_s: float = 60.0, **known: Any) -> float | None:
        """Let the roller take a step, then let time pass."""
        voters = frozenset(f"n{ordinal}" for ordinal in range(self.world.size))
        values: dict[str, Any] = {"identity": "", "led": True, "scaling": False}
        again_s = await self.roller.run_once(
            group(replicas=self.world.size),
            self.world.wanted,
            Membership(voters=voters),
            **values | known,
        )
        self.world.pass_time(passing_s)
        return again_s

    async def steps(self, count: int, passing_s: float = 60.0) -> None:
        """Let the roller take several steps."""
        for _ in range(count):
            await self.step(passing_s)

    def replaced(self) -> list[int]:
        """The ordinals of the pods that were replaced, in that order."""
        return [ordinal for ordinal, _, _ in self.world.replaced]

    @property
    def reason(self) -> str:
        return self.roller.problem.reason if self.roller.problem else ""


async def test_a_roll_waits_while_the_budget_keeps_the_pod_and_goes_on_afterwards() -> None:
    rolling = Rolling()
    rolling.world.image, rolling.world.budget_used_up = "node:2", True
    await rolling.step()

    assert rolling.reason == "DisruptionBudget"
    assert rolling.world.replaced == []

    rolling.world.budget_used_up = False
    await rolling.step()
    assert rolling.reason == "PodStarting"
    assert rolling.replaced() == [2]


async def test_the_leader_hands_over_to_a_member_on_a_node_that_stays() -> None:
    rolling = Rolling()
    rolling.world.leader, rolling.world.cordoned = "n0", frozenset({"n1"})
    rolling.world.image = "node:2"

    await rolling.steps(8)

    assert sorted(rolling.replaced()) == [0, 1, 2]
    assert (rolling.world.leader, rolling.world.transfers) == ("n2", 1)


async def test_no_pod_is_replaced_while_the_window_is_closed() -> None:
    rolling = Rolling()
    rolling.world.image = "node:2"
    closed = Problem(reason="WaitingForWindow", message="opens on Saturday")

    await rolling.step(closed=closed)
    assert rolling.reason == "WaitingForWindow"
    await rolling.step(led=False, closed=closed)  # the members say that they have had a leader
    assert rolling.replaced() == []

    await rolling.step()
    assert rolling.replaced() == [2]


async def test_a_member_that_fails_after_a_roll_is_no_roll_for_the_next_operator() -> None:
    world = RollingWorld(size=3)
    world.pods[2].down = True
    world.settle()

    rolling = Rolling(world=world)
    rolling.roller.take_as_proven(world.wanted)
    assert await rolling.step(0.0) is None

    assert (rolling.reason, rolling.events) == ("", [])


class ForbiddingWorld(RollingWorld):
    """An API server that does not let the operator remove pods."""

    forbids = True

    async def replace_pod(self, view: PodView) -> None:
        if self.forbids:
            raise RefusedError("pods/eviction is forbidden")
        await super().replace_pod(view)


async def test_a_refused_removal_is_told_once_and_tried_again() -> None:
    world = ForbiddingWorld(size=3)
    rolling = Rolling(world=world)
    world.image = "node:2"

    await rolling.steps(3)
    assert rolling.reason == "RemovalRefused"
    assert [event.reason for event in rolling.events] == ["RemovalRefused"]

    world.forbids = False
    await rolling.step()
    assert rolling.replaced() == [2]


@pytest.mark.parametrize("size", [1, 3, 5])
async def test_a_corrected_spec_reaches_members_that_run_and_do_not_lead(size: int) -> None:
    rolling = Rolling(size)
    rolling.world.image = f"{HUNG}:1"
    for each in rolling.world.pods.values():
        each.image = rolling.world.image
    rolling.world.settle()
    assert rolling.world.leader is None
    await rolling.step()

    rolling.world.image = "node:2"
    await rolling.steps(40, passing_s=5.0)

    assert {each.image for each in rolling.world.pods.values()} == {"node:2"}
    assert rolling.world.leader is not None
    assert rolling.reason == ""


async def test_members_that_have_just_lost_their_leader_are_left_alone() -> None:
    rolling = Rolling()
    rolling.world.image = "node:2"
    rolling.world.pods[0].image = rolling.world.pods[1].image = f"{HUNG}:1"
    rolling.world.settle()
    await rolling.steps(20, passing_s=1.0)

    assert (rolling.reason, rolling.replaced()) == ("NoLeader", [])


async def test_a_hung_revision_costs_one_member_of_a_group_without_a_leader() -> None:
    rolling = Rolling()
    for each in rolling.world.pods.values():
        each.image = f"{HUNG}:1"
    rolling.world.settle()
    rolling.world.image = f"{BAD}:2"
    await rolling.steps(20)

    assert (rolling.reason, rolling.replaced()) == ("RollHalted", [2])


async def test_the_last_replaced_pod_that_fails_is_named_until_it_serves() -> None:
    rolling = Rolling(1)
    rolling.world.image = f"{BAD}:2"
    await rolling.steps(3)

    assert rolling.reason == "RollHalted"
    assert rolling.roller.problem is not None
    assert "flights-0: ImagePullBackOff" in rolling.roller.problem.message
    assert [each.reason for each in rolling.events].count("RollHalted") == 1


async def test_a_replaced_pod_that_runs_and_never_serves_halts_the_roll_after_five_minutes() -> (
    None
):
    rolling = Rolling()
    rolling.world.image = f"{HUNG}:2"
    await rolling.steps(5)
    assert (rolling.reason, rolling.replaced()) == ("PodStarting", [2])

    await rolling.steps(5)
    assert (rolling.reason, rolling.replaced()) == ("RollHalted", [2])
    assert [each.reason for each in rolling.events].count("RollHalted") == 1

    rolling.world.image = "node:3"
    await rolling.step()
    assert (rolling.reason, rolling.replaced()) == ("PodStarting", [2, 2])


async def test_a_pod_that_crashes_again_and_again_halts_the_roll_once_until_it_serves() -> None:
    """Its container runs for a moment between two back-offs of the kubelet."""
    rolling = Rolling()
    rolling.world.image = f"{HUNG}:2"
    await rolling.step(5.0)
    told = []
    for number in range(6):
        rolling.world.pods[2].down = number % 2 == 0
        await rolling.step(5.0)
        told.append(rolling.reason)

    assert told == ["RollHalted"] * 6
    assert rolling.roller.problem is not None
    assert "flights-2: ImagePullBackOff" in rolling.roller.problem.message
    assert [each.reason for each in rolling.events].count("RollHalted") == 1

    rolling.world.pods[2].image, rolling.world.image = "node:2", "node:2"
    await rolling.steps(2, passing_s=10.0)
    assert rolling.replaced() == [2, 1]


def test_why_a_pod_did_not_start_counts_until_it_is_ready_or_the_revision_changes() -> None:
    new, newer = (Revision(parts={"image": each}) for each in ("node:2", "node:3"))
    crashed = Problem(reason="CrashLoopBackOff", message="back-off 10s")
    runs, problems = pod(2, revision=new, ready=False), LastProblems()

    def problem_of(view: PodView, wanted: Revision = new) -> Problem | None:
        return problems.observe([view], wanted)[0].problem

    assert problem_of(replace(runs, problem=crashed)) == crashed
    assert problem_of(runs) == crashed
    assert problem_of(replace(runs, uid="the next pod")) is None
    assert problem_of(replace(runs, problem=crashed)) == crashed
    assert problem_of(replace(runs, ready=True)) is None
    assert problem_of(runs) is None
    assert problem_of(replace(runs, problem=crashed)) == crashed
    assert problem_of(runs, newer) is None
    assert problem_of(runs) is None


def test_why_a_pod_had_no_node_is_over_once_it_has_one() -> None:
    """It then pulls its image and reads its log, which may take minutes."""
    new, problems = Revision(parts={"image": "node:2"}), LastProblems()
    waits = pod(2, revision=new, ready=False, runs=False)
    full = Problem(reason="Unschedulable", message="0/3 nodes are available")
    crashed = Problem(reason="CrashLoopBackOff", message="back-off 10s")
    scheduled = replace(waits, node="worker-1")
    seen = [replace(waits, problem=full), scheduled, replace(scheduled, problem=crashed), scheduled]

    found = [problems.observe([each], new)[0].problem for each in seen]

    assert found == [full, None, crashed, crashed]


async def test_a_roll_that_goes_on_after_days_does_not_halt_for_a_pod_that_just_restarts() -> None:
    """Its window was closed, or the group was paused, so nobody looked at the pod meanwhile."""
    rolling = Rolling()
    rolling.world.image = "node:2"
    await rolling.step(1.0)
    await rolling.step(6 * 86400.0)
    rolling.world.pods[2].made_at_s = rolling.world.now_s

    await rolling.step(1.0)
    assert (rolling.reason, rolling.replaced()) == ("PodStarting", [2])
    await rolling.steps(3)
    assert rolling.replaced() == [2, 1]
    assert "RollHalted" not in [each.reason for each in rolling.events]


async def test_a_pod_that_was_not_ready_before_its_replacement_has_its_time_to_start() -> None:
    rolling = Rolling()
    rolling.world.pods[2].down = True
    await rolling.steps(20)
    rolling.world.image = "node:2"
    await rolling.step(1.0)
    await rolling.step(1.0)

    assert (rolling.reason, rolling.replaced()) == ("PodStarting", [2])


async def test_a_pod_that_cannot_be_created_halts_the_roll_until_it_exists() -> None:
    refused = [CreationFailure(pod="flights-2", message="exceeded quota: team")]
    rolling = Rolling()
    rolling.world.image, rolling.world.refuses_pods = "node:2", True
    for _ in range(3):
        await rolling.step(failures=refused)

    assert rolling.roller.problem is not None
    assert rolling.reason == "RollHalted"
    assert "the pod of n2: FailedCreate: exceeded quota: team" in rolling.roller.problem.message

    rolling.world.refuses_pods = False
    rolling.world.settle()
    await rolling.steps(12)
    assert (rolling.reason, rolling.replaced()) == ("", [2, 1, 0])


async def test_an_operator_that_starts_after_the_last_replacement_names_the_failing_pod() -> None:
    rolling = Rolling(1)
    rolling.world.image = f"{HUNG}:2"
    await rolling.step()
    again = Rolling(world=rolling.world)
    await again.step()

    assert again.reason == "PodStarting"


async def test_a_roll_halts_if_new_pods_differ_from_their_template() -> None:
    rolling = Rolling()
    rolling.world.image, rolling.world.strips_revisions = "node:2", True
    await rolling.steps(20)

    assert (rolling.reason, rolling.replaced()) == ("Stalled", [2])
    assert rolling.roller.problem is not None
    assert "flights-2" in rolling.roller.problem.message
    assert "dledger.io/revision" in rolling.roller.problem.message

    rolling.world.image, rolling.world.strips_revisions = "node:3", False
    await rolling.steps(20)
    assert rolling.reason == ""
    assert sorted(rolling.replaced()) == [0, 1, 2, 2]


async def test_a_clock_that_differs_from_the_servers_neither_hurries_nor_stops_a_roll() -> None:
    """The time since a pod became ready is measured by the operator's own clock."""
    for ahead_s in (3600.0, -3600.0):
        rolling = Rolling()
        rolling.world.ready_times_off_s = -ahead_s
        rolling.world.image = "node:2"
        await rolling.steps(8, passing_s=1.0)
        assert rolling.replaced() == [2], "ready for less than READY_S_MIN"
        await rolling.steps(2, passing_s=1.0)
        assert rolling.replaced() == [2, 1]


async def test_a_problem_ends_with_the_target_that_it_was_about() -> None:
    rolling = Rolling()
    rolling.world.image = f"{BAD}:2"
    await rolling.steps(3)
    assert rolling.reason == "RollHalted"
    rolling.roller.forget()

    assert rolling.reason == ""
