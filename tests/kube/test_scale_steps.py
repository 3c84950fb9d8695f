"""The next step from the members that there are to those that the spec asks for."""

from dataclasses import replace

import pytest

from dledger_formats.protocol.membership_change import ChangeKind
from dledger_formats.settings import GroupState
from dledger_kube.objects import electorate
from dledger_kube.scaling_world import ScalingWorld
from dledger_operator.behaviours.members.scale_steps import (
    ChangeMember,
    SetPods,
    Step,
    Transfer,
    Wait,
    next_step,
)

FIVE = {"n0", "n1", "n2", "n3", "n4"}


def step(world: ScalingWorld) -> Step | None:
    return next_step(world.seen())


def reason(world: ScalingWorld) -> str:
    found = step(world)
    assert isinstance(found, Wait)
    return found.reason


def five(**fields: object) -> ScalingWorld:
    return ScalingWorld(pods=5, voters=set(FIVE), **fields)  # type: ignore[arg-type]


def test_a_group_that_is_as_asked_is_left_alone() -> None:
    assert step(ScalingWorld()) is None


def test_growing_begins_with_the_pods() -> None:
    assert step(ScalingWorld(replicas=5)) == SetPods(replicas=5)


def test_a_new_member_learns_before_it_votes_and_the_lowest_comes_first() -> None:
    world = ScalingWorld(replicas=5, pods=5)

    assert step(world) == ChangeMember(kind=ChangeKind.ADD_LEARNER, member_id="n3")
    world.learners = {"n3"}
    assert step(world) == ChangeMember(kind=ChangeKind.PROMOTE, member_id="n3")
    world.learners, world.voters = set(), world.voters | {"n3"}
    assert step(world) == ChangeMember(kind=ChangeKind.ADD_LEARNER, member_id="n4")


def test_a_member_that_does_not_answer_is_not_added() -> None:
    assert reason(ScalingWorld(replicas=5, pods=5, down={"n3"})) == "MemberStarting"


def test_a_group_grows_only_while_all_voters_are_there() -> None:
    assert reason(ScalingWorld(replicas=5, down={"n2"})) == "MemberSilent"


def test_pods_of_an_earlier_version_are_named_before_anything_is_changed() -> None:
    found = step(ScalingWorld(replicas=5, outdated={"n0", "n2"}))

    assert isinstance(found, Wait)
    assert found.reason == "PodsOutdated"
    assert "n0, n2 started with settings that do not name n3, n4" in found.message


def test_a_leader_that_knows_no_memberships_is_asked_for_none() -> None:
    world = ScalingWorld(replicas=5)
    seen = world.seen()
    old = {key: replace(each, voters=[], addable=[]) for key, each in seen.answers.items()}

    found = next_step(replace(seen, answers=old))

    assert isinstance(found, Wait)
    assert found.reason == "PodsOutdated"


def test_a_group_whose_founding_is_not_over_does_not_grow() -> None:
    seen = ScalingWorld(replicas=5).seen()
    shape = replace(seen.shape, state=GroupState.NEW)

    assert isinstance(next_step(replace(seen, shape=shape)), Wait)


def test_the_highest_member_is_removed_first() -> None:
    assert step(five(replicas=3)) == ChangeMember(kind=ChangeKind.REMOVE, member_id="n4")


def test_a_leader_that_is_to_go_hands_over_first_to_one_that_stays() -> None:
    found = step(five(replicas=3, leader="n4"))

    assert isinstance(found, Transfer)
    assert found.to in ("n0", "n1", "n2")


def test_a_leader_that_reaches_nobody_that_stays_is_not_removed() -> None:
    world = five(replicas=1, leader="n4", down={"n0"})

    assert reason(world) == "NoSuccessor"


def test_a_pod_of_nobody_goes_only_after_a_leader_confirmed_that() -> None:
    world = ScalingWorld(pods=5)

    assert step(world) == ChangeMember(kind=ChangeKind.REMOVE, member_id="n4")


def test_pods_that_no_settings_name_go_at_once() -> None:
    assert step(ScalingWorld(pods=9)) == SetPods(replicas=7)


def test_a_member_without_a_pod_gets_it_back_before_anything_else() -> None:
    assert step(replace(five(replicas=3), pods=4)) == SetPods(replicas=5)


def test_a_voter_whose_pod_was_taken_does_not_keep_the_group_from_growing() -> None:
    world = ScalingWorld(replicas=5, pods=3, voters={"n0", "n1", "n2", "n3"})

    assert step(world) == SetPods(replicas=4)


def test_nothing_is_changed_while_a_change_is_not_committed() -> None:
    seen = five(replicas=3).seen()
    leading = replace(seen.answers["n1"], membership_index=100)

    found = next_step(replace(seen, answers={**seen.answers, "n1": leading}))

    assert isinstance(found, Wait)
    assert found.reason == "ChangeUnderWay"


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        (ScalingWorld(leader=None), None),
        (ScalingWorld(leader=None, pods=2), SetPods(replicas=3)),
        (five(leader=None, replicas=5), None),
    ],
)
def test_without_a_leader_only_pods_that_somebody_took_come_back(
    world: ScalingWorld, expected: Step | None
) -> None:
    assert step(world) == expected


def test_without_a_leader_the_pods_of_all_known_members_come_back() -> None:
    world = ScalingWorld(leader=None, replicas=3, pods=1)

    assert next_step(world.seen(electorate(5))) == SetPods(replicas=5)


@pytest.mark.parametrize("replicas", [1, 5])
def test_without_a_leader_nothing_grows_and_nothing_goes(replicas: int) -> None:
    assert reason(ScalingWorld(leader=None, replicas=replicas)) == "NoLeader"


def test_a_leader_is_believed_only_in_the_term_that_it_was_proven_in() -> None:
    seen = five(replicas=3).seen()
    deposed = replace(seen.answers["n1"], term=6)

    found = next_step(replace(seen, answers={**seen.answers, "n1": deposed}))

    assert isinstance(found, Wait)
    assert found.reason == "NoLeader"
