"""The next step from a group's current members to those that its spec asks for."""

from dataclasses import replace

import pytest

from dledger_formats.http.status import StorageState
from dledger_formats.protocol.membership_change import ChangeKind
from dledger_formats.settings import GroupState
from dledger_kube.objects import IMAGES, group_body, membership, node_status, pod
from dledger_kube.scaling_world import ScalingWorld
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.members.scale_steps import ScaleState, next_step
from dledger_operator.behaviors.members.steps import ChangeMember, Step
from dledger_operator.behaviors.steps import HandOver, SetPods, Wait
from dledger_operator.problem import Problem

FIVE = {"n0", "n1", "n2", "n3", "n4"}


def step(world: ScalingWorld) -> Step | None:
    return next_step(world.state())


def reason(world: ScalingWorld) -> str:
    found = step(world)
    assert isinstance(found, Wait)
    return found.reason


def five(**fields: object) -> ScalingWorld:
    return ScalingWorld(pods=5, voters=set(FIVE), **fields)  # type: ignore[arg-type]


def not_begun(replicas: int) -> ScaleState:
    """A group that was made with three members, which hold nothing."""
    state = ScalingWorld(leader=None, replicas=replicas).state()
    blank = {
        each: node_status(
            each, term=0, leader_id=None, ready=False, ledger_begin_index=-1,
            ledger_end_index=-1, ledger_end_term=-1, committed_index=-1,
        )
        for each in ("n0", "n1", "n2")
    }  # fmt: skip
    return replace(state, shape=replace(state.shape, state=GroupState.NEW), answers=blank)


def test_a_group_that_matches_its_spec_needs_no_step() -> None:
    assert step(ScalingWorld()) is None


def test_growth_that_lost_its_leader_midway_is_not_finished() -> None:
    world = ScalingWorld(replicas=5, pods=5, learners={"n3"}, leader=None)

    assert reason(world) == "NoLeader"
    assert step(ScalingWorld(leader=None)) is None


def test_scaling_up_creates_the_pods_first() -> None:
    assert step(ScalingWorld(replicas=5)) == SetPods(replicas=5)


def test_members_are_added_as_learners_and_then_promoted_lowest_ordinal_first() -> None:
    world = ScalingWorld(replicas=5, pods=5)

    assert step(world) == ChangeMember(kind=ChangeKind.ADD_LEARNER, member_id="n3")
    world.learners = {"n3"}
    assert step(world) == ChangeMember(kind=ChangeKind.PROMOTE, member_id="n3")
    world.learners, world.voters = set(), world.voters | {"n3"}
    assert step(world) == ChangeMember(kind=ChangeKind.ADD_LEARNER, member_id="n4")


def test_a_member_that_does_not_answer_is_not_added() -> None:
    assert reason(ScalingWorld(replicas=5, pods=5, down={"n3"})) == "MemberStarting"


def test_scaling_up_waits_until_all_voters_answer() -> None:
    assert reason(ScalingWorld(replicas=5, down={"n2"})) == "MemberSilent"


def test_scaling_up_waits_for_voters_whose_settings_do_not_name_the_new_members() -> None:
    found = step(ScalingWorld(replicas=5, outdated={"n0", "n2"}))

    assert isinstance(found, Wait)
    assert found.reason == "PodsOutdated"
    assert "n0, n2 started with settings that do not name n3, n4" in found.message


def test_scaling_up_waits_until_the_founding_is_recorded() -> None:
    state = ScalingWorld(replicas=5).state()
    shape = replace(state.shape, state=GroupState.NEW)

    assert isinstance(next_step(replace(state, shape=shape)), Wait)


def test_the_member_with_the_highest_ordinal_is_removed_first() -> None:
    assert step(five(replicas=3)) == ChangeMember(kind=ChangeKind.REMOVE, member_id="n4")


def test_a_leader_that_must_be_removed_transfers_its_leadership_first() -> None:
    found = step(five(replicas=3, leader="n4"))

    assert isinstance(found, HandOver)
    assert found.to in ("n0", "n1", "n2")


@pytest.mark.parametrize(
    ("emptied", "successors"),
    [({"n0"}, {"n1", "n2"}), ({"n0", "n2"}, {"n1"}), ({"n0", "n1", "n2"}, {"n0", "n1", "n2"})],
    ids=["one is cordoned", "two are cordoned", "all are cordoned"],
)
def test_the_successor_is_not_on_a_node_that_is_being_emptied_if_another_can_lead(
    emptied: set[str], successors: set[str]
) -> None:
    state = replace(five(replicas=3, leader="n4").state(), emptied=frozenset(emptied))

    found = next_step(state)

    assert isinstance(found, HandOver)
    assert found.to in successors


def test_a_leader_without_a_reachable_successor_is_not_removed() -> None:
    world = five(replicas=1, leader="n4", down={"n0"})

    assert reason(world) == "NoSuccessor"


@pytest.mark.parametrize("unready", [{"n0"}, {"n0", "n1"}, {"n2"}])
def test_a_voter_that_does_not_serve_gets_no_leadership(unready: set[str]) -> None:
    """Its volume may be full or its disk stuck, so that it would not stand for election. In a group
    without appends, it has all entries nevertheless.
    """
    found = step(five(replicas=3, leader="n4", unready=unready))

    assert isinstance(found, HandOver)
    assert found.to in {"n0", "n1", "n2"} - unready


def test_a_leader_whose_successors_do_not_serve_keeps_the_leadership_and_says_why() -> None:
    found = step(five(replicas=3, leader="n4", unready={"n0", "n1"}, down={"n2"}))

    assert isinstance(found, Wait)
    assert found.reason == "NoSuccessor"
    assert "n0 is not ready; n1 is not ready" in found.message


def test_the_pod_of_a_non_member_stays_until_the_leader_confirms_the_removal() -> None:
    world = ScalingWorld(pods=5)

    assert step(world) == ChangeMember(kind=ChangeKind.REMOVE, member_id="n4")


def test_pods_beyond_the_largest_group_are_deleted_at_once() -> None:
    assert step(ScalingWorld(pods=9)) == SetPods(replicas=7)


def test_a_missing_pod_of_a_member_is_restored_before_any_other_step() -> None:
    assert step(replace(five(replicas=3), pods=4)) == SetPods(replicas=5)


def test_a_missing_pod_of_a_voter_is_restored_while_scaling_up() -> None:
    world = ScalingWorld(replicas=5, pods=3, voters={"n0", "n1", "n2", "n3"})

    assert step(world) == SetPods(replicas=4)


def test_the_next_change_waits_until_the_last_one_is_committed() -> None:
    state = five(replicas=3).state()
    leading = replace(state.answers["n1"], membership_index=100)

    found = next_step(replace(state, answers={**state.answers, "n1": leading}))

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
def test_only_missing_pods_are_restored_without_a_leader(
    world: ScalingWorld, expected: Step | None
) -> None:
    assert step(world) == expected


def test_pods_of_all_known_members_are_restored_without_a_leader() -> None:
    world = ScalingWorld(leader=None, replicas=3, pods=1)

    assert next_step(world.state(membership(5))) == SetPods(replicas=5)


@pytest.mark.parametrize("replicas", [1, 5])
def test_a_group_is_not_scaled_without_a_leader(replicas: int) -> None:
    assert reason(ScalingWorld(leader=None, replicas=replicas)) == "NoLeader"


def test_a_group_that_has_not_begun_says_that_it_begins_as_it_was_founded_and_grows() -> None:
    new = not_begun(replicas=5)

    found = next_step(new)

    assert isinstance(found, Wait)
    assert "begins with 3 members once all of them run, and grows to 5 afterwards" in found.message
    begun = replace(new, shape=replace(new.shape, state=GroupState.EXISTING))
    assert "has not begun" not in str(next_step(begun)), "a group that has begun keeps its log"
    assert "hibernation" in str(next_step(replace(new, hibernate=True)))


@pytest.mark.parametrize(
    "held",
    [
        {"ledger_end_index": 0},
        {"committed_index": 0},
        {"term": 1},
        {"leader_id": "n1"},
        {"storage": StorageState.FAILED},
    ],
)
def test_a_group_whose_members_began_unseen_is_not_said_to_be_new(
    held: dict[str, object],
) -> None:
    """They may have elected a leader and acknowledged entries while no operator ran."""
    new = not_begun(replicas=5)
    one = replace(new.answers["n2"], **held)  # type: ignore[arg-type]

    found = str(next_step(replace(new, answers={**new.answers, "n2": one})))

    assert "there is none" in found
    assert "has not begun" not in found


@pytest.mark.parametrize(("silent", "is_sure"), [(1, True), (2, False), (3, False)])
def test_members_that_do_not_answer_may_have_elected_a_leader_if_they_are_a_majority(
    silent: int, is_sure: bool
) -> None:
    new = not_begun(replicas=5)
    answers = {each: new.answers[each] for each in sorted(new.answers)[silent:]}

    assert ("has not begun" in str(next_step(replace(new, answers=answers)))) is is_sure


def test_a_leader_status_of_another_term_does_not_count() -> None:
    state = five(replicas=3).state()
    deposed = replace(state.answers["n1"], term=6)

    found = next_step(replace(state, answers={**state.answers, "n1": deposed}))

    assert isinstance(found, Wait)
    assert found.reason == "NoLeader"


def test_no_member_is_removed_and_no_leader_moved_while_an_audit_goes_first() -> None:
    held = Problem(reason="AuditGoesFirst", message="an audit goes first")

    for leader in ("n0", "n4"):
        world = five(replicas=3, leader=leader)
        assert step(world) != next_step(replace(world.state(), held_back=held))
        assert next_step(replace(world.state(), held_back=held)) == Wait(
            Problem(reason="AuditGoesFirst", message="an audit goes first")
        )


def test_an_audit_before_removals_does_not_hold_up_growth() -> None:
    held = Problem(reason="AuditGoesFirst", message="an audit goes first")

    assert next_step(replace(ScalingWorld(replicas=5).state(), held_back=held)) == SetPods(
        replicas=5
    )


def test_pods_that_never_became_members_go_without_an_audit() -> None:
    held = Problem(reason="AuditGoesFirst", message="an audit goes first")
    abandoned = ScalingWorld(pods=5, down={"n3", "n4"})

    assert next_step(replace(abandoned.state(), held_back=held)) == step(abandoned)
    abandoned.learners = {"n3"}
    assert next_step(replace(abandoned.state(), held_back=held)) == Wait(
        Problem(reason="AuditGoesFirst", message="an audit goes first")
    )


@pytest.mark.parametrize(
    ("learners", "removes"), [pytest.param((), False, id="pods"), (("n3",), True)]
)
def test_only_a_member_that_is_to_go_calls_for_an_audit(
    learners: tuple[str, ...], removes: bool
) -> None:
    snapshot = GroupSnapshot.of(group_body({"replicas": 3}), IMAGES)
    snapshot.followed = replace(snapshot.followed, pods=[pod(k) for k in range(5)])
    snapshot.membership = membership(3, learners)

    assert snapshot.removes_members is removes
