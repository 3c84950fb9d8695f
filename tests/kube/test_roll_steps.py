"""The order of a roll and its next step."""

from dataclasses import replace
from typing import Any

import pytest

from dledger_operator.behaviors.rolls.roll_state import (
    LAG_ENTRIES_MAX,
    READY_S_MIN,
    RollPod,
    RollState,
)
from dledger_operator.behaviors.rolls.roll_steps import (
    LATE_S_MIN,
    REFUSED_S_MIN,
    ReplacePod,
    in_order,
    next_step,
    unproven,
)
from dledger_operator.behaviors.steps import HandOver, Wait
from dledger_operator.problem import Problem

WHY = "flush SyncFlush to AsyncFlush"


def pod(ordinal: int, behind: str = "", **fields: Any) -> RollPod:
    """A healthy pod that has been ready for a minute."""
    values: dict[str, Any] = {
        "name": f"flights-{ordinal}", "uid": f"uid-{ordinal}", "member_id": f"n{ordinal}",
        "behind": behind, "leaving": False, "runs": True, "healthy": True, "blank": False,
        "ready_s": 60.0, "lag_entries": 0,
    }  # fmt: skip
    return RollPod(**values | fields)


def down(ordinal: int, behind: str = "", **fields: Any) -> RollPod:
    """A pod whose container does not run."""
    lost = {"runs": False, "healthy": False, "ready_s": 0.0, "lag_entries": None}
    problem = Problem(reason="ImagePullBackOff", message="no such image")
    return pod(ordinal, behind, problem=problem, **lost | fields)


def state(*pods: RollPod, leader: str | None = "n1", **fields: Any) -> RollState:
    values: dict[str, Any] = {
        "pods": pods, "leader_id": leader, "led": True, "scaling": False,
        "voters": frozenset(each.member_id for each in pods),
    }  # fmt: skip
    return RollState(**values | fields)


def replaces(of: RollState) -> str:
    step = next_step(of)
    assert isinstance(step, ReplacePod), step
    return step.pod


def waits(of: RollState) -> Wait:
    step = next_step(of)
    assert isinstance(step, Wait), step
    return step


def test_nothing_is_done_while_every_pod_is_of_the_wanted_revision() -> None:
    assert next_step(state(pod(0), pod(1), down(2))) is None


def test_followers_are_replaced_one_at_a_time_and_the_leader_hands_over_first() -> None:
    assert replaces(state(pod(0, WHY), pod(1, WHY), pod(2, WHY))) == "flights-2"
    assert replaces(state(pod(0, WHY), pod(1, WHY), pod(2))) == "flights-0"
    assert next_step(state(pod(0, lag_entries=3), pod(1, WHY), pod(2))) == HandOver(
        leader_id="n1", to="n2"
    )
    assert replaces(state(pod(0), pod(1, WHY), pod(2), leader="n2")) == "flights-1"


def test_the_plan_lists_what_is_down_first_and_the_leader_last() -> None:
    of = state(
        pod(0, WHY), pod(1, WHY), pod(2, WHY), pod(3, WHY, healthy=False), down(4, WHY), leader="n2"
    )

    assert [each.name for each in in_order(of)] == [
        "flights-4", "flights-3", "flights-1", "flights-0", "flights-2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ready_s": READY_S_MIN - 0.1}, "waits for flights-2"),
        ({"lag_entries": LAG_ENTRIES_MAX + 1}, "waits for flights-2"),
        ({"lag_entries": None}, "waits for flights-2"),
        (
            {"healthy": False, "reason": "joining: waits for a leader"},
            "joining: waits for a leader",
        ),
        ({"leaving": True, "healthy": False}, "waits for flights-2"),
    ],
)
def test_the_next_pod_waits_for_the_replaced_one(fields: dict[str, Any], words: str) -> None:
    step = waits(state(pod(0, WHY), pod(1, WHY), pod(2, **fields)))

    assert step.reason == "PodStarting"
    assert words in step.message


def test_a_bad_revision_halts_after_one_pod_and_goes_on_when_the_spec_is_right() -> None:
    halted = waits(state(pod(0, WHY), pod(1, WHY), down(2)))
    assert halted.reason == "RollHalted"
    assert "flights-2: ImagePullBackOff: no such image; correct spec.image" in halted.message

    assert replaces(state(pod(0, WHY), pod(1, WHY), down(2, "image"))) == "flights-2"


def test_a_replaced_pod_that_cannot_be_created_halts_the_roll_with_the_reason_and_the_cure() -> (
    None
):
    refused = {"n2": Problem(reason="FailedCreate", message="exceeded quota: team")}
    known = {"voters": frozenset({"n0", "n1", "n2"}), "refused": refused}
    pods = (pod(0, WHY), pod(1, WHY))

    halted = waits(state(*pods, awaited_s={"n2": REFUSED_S_MIN}, **known))

    assert halted.reason == "RollHalted"
    assert "the pod of n2: FailedCreate: exceeded quota: team; raise the names" in halted.message
    for_a_moment = waits(state(*pods, awaited_s={"n2": REFUSED_S_MIN - 0.1}, **known))
    assert for_a_moment.reason == "PodStarting", "a quota counts a removed pod for a moment"


def test_a_replaced_pod_that_is_missing_or_not_ready_for_minutes_halts_the_roll() -> None:
    late = {"awaited_s": {"n2": LATE_S_MIN}}
    opens = pod(2, healthy=False, reason="the store is being opened")
    voters = frozenset({"n0", "n1", "n2"})

    hangs = waits(state(pod(0, WHY), pod(1, WHY), opens, **late))
    missing = waits(state(pod(0, WHY), pod(1, WHY), voters=voters, **late))
    last = unproven(state(pod(0), pod(1), opens, **late))

    assert last is not None
    assert {hangs.reason, missing.reason, last.reason} == {"RollHalted"}
    assert "flights-2 (the store is being opened) has not been ready for 5 minutes" in hangs.message
    assert "the pod of n2 has not existed for 5 minutes" in missing.message
    early = {"awaited_s": {"n2": LATE_S_MIN - 0.1}}
    assert waits(state(pod(0, WHY), pod(1, WHY), opens, **early)).reason == "PodStarting"


def test_a_member_that_fails_for_a_moment_does_not_get_a_revision_that_is_not_proven() -> None:
    bad, slow = down(2), pod(2, healthy=False)

    assert waits(state(pod(0), down(1, WHY), bad, leader="n0")).reason == "RollHalted"
    assert waits(state(pod(0), down(1, WHY), slow, leader="n0")).reason == "PodStarting"


def test_members_that_are_all_down_are_replaced_until_they_can_elect() -> None:
    assert replaces(state(down(0, WHY), down(1, WHY), down(2, WHY), leader=None)) == "flights-2"
    starting = pod(2, healthy=False)
    assert replaces(state(down(0, WHY), down(1, WHY), starting, leader=None)) == "flights-1"
    two = (pod(1, healthy=False), starting)
    assert waits(state(down(0, WHY), *two, leader=None)).reason == "PodStarting"


def test_no_step_leaves_fewer_healthy_voters_than_a_majority() -> None:
    lost = pod(0, WHY, healthy=False)

    assert replaces(state(lost, pod(1, WHY), pod(2, WHY))) == "flights-0"
    gone = state(pod(1, WHY), pod(2, WHY), voters=frozenset({"n0", "n1", "n2"}))
    assert "n0 does not exist" in waits(gone).message
    far = pod(0, WHY, lag_entries=LAG_ENTRIES_MAX + 1)
    assert waits(state(far, pod(1, WHY), pod(2, WHY))).reason == "QuorumAtRisk"


def test_a_leader_hands_over_to_a_member_on_a_node_that_stays_if_there_is_one() -> None:
    emptied, lagging = pod(0, emptied=True), pod(2, lag_entries=3)

    assert next_step(state(emptied, pod(1, WHY), lagging)) == HandOver(leader_id="n1", to="n2")
    none_stays = replace(lagging, emptied=True)
    assert next_step(state(emptied, pod(1, WHY), none_stays)) == HandOver(leader_id="n1", to="n0")


def test_a_leader_does_not_hand_over_to_members_that_could_not_commit() -> None:
    of = state(pod(0), pod(1, WHY), pod(2), pod(3), pod(4))
    lagging = [replace(each, lag_entries=LAG_ENTRIES_MAX + 1, behind=WHY) for each in of.pods[2:]]

    assert waits(state(*of.pods[:2], *lagging)).reason == "QuorumAtRisk"
    assert isinstance(next_step(of), HandOver)


@pytest.mark.parametrize(
    ("fields", "reason"), [({"leader": None}, "NoLeader"), ({"scaling": True}, "Scaling")]
)
def test_running_members_are_left_alone_without_a_leader_and_while_scaling(
    fields: dict[str, Any], reason: str
) -> None:
    assert waits(state(pod(0, WHY), pod(1, WHY), pod(2, WHY), **fields)).reason == reason


def test_the_only_member_of_a_group_is_replaced() -> None:
    assert replaces(state(pod(0, WHY), leader="n0")) == "flights-0"


def test_pods_that_never_began_are_replaced_before_the_first_leader() -> None:
    never = {"leader": None, "led": False}
    empty = pod(1, WHY, healthy=False, blank=True)
    unknown = pod(2, WHY, healthy=False)

    assert replaces(state(down(0, WHY), down(1), down(2), **never)) == "flights-0"
    assert replaces(state(down(0), empty, unknown, **never)) == "flights-1"
    assert waits(state(down(0), pod(1), unknown, **never)).reason == "NoLeader"


def test_a_learner_that_is_behind_costs_no_vote() -> None:
    learner = pod(3, WHY)
    of = state(pod(0), pod(1), pod(2), learner, voters=frozenset({"n0", "n1", "n2"}))

    assert replaces(of) == "flights-3"


def test_the_pod_of_a_removed_member_that_is_being_deleted_holds_up_no_roll() -> None:
    """Its node may have died, so that it stays for as long as nobody deletes the node."""
    removed = down(3, "image", leaving=True)
    voters = frozenset({"n0", "n1", "n2"})

    going = state(pod(0, "image"), pod(1), pod(2), removed, voters=voters)
    assert replaces(going) == "flights-0"

    done = state(pod(0), pod(1), pod(2), removed, voters=voters)
    assert waits(done).reason == "PodStarting"


def test_a_pod_whose_claim_was_deleted_keeps_the_only_log() -> None:
    """The claim goes with the pod that still uses it."""
    assert waits(state(pod(0, WHY, volume_leaving=True), leader="n0")).reason == "VolumeTerminating"
    stopped = (down(number, WHY, volume_leaving=True) for number in (1, 2))
    assert waits(state(pod(0), *stopped, leader=None)).reason == "NoLeader"
    lagging = pod(0, lag_entries=LAG_ENTRIES_MAX + 1, behind=WHY)
    step = waits(state(lagging, pod(1), pod(2, WHY, volume_leaving=True)))
    assert step.reason == "VolumeTerminating"


def test_a_pod_whose_claim_was_deleted_is_replaced_once_all_others_have_its_entries() -> None:
    assert replaces(state(pod(0), pod(1), pod(2, WHY, volume_leaving=True))) == "flights-2"
