"""When a group that has not begun is founded again, with fewer first voters."""

from dataclasses import replace
from typing import Any

import pytest

from dledger_formats.settings import GroupState
from dledger_kube.objects import node_status
from dledger_operator.api_objects import StatefulSetView
from dledger_operator.behaviors.founding.founded_again import Unbegun, Watch, applies, fence
from dledger_operator.behaviors.founding.founded_again import next_step as next_step_at
from dledger_operator.behaviors.steps import FoundAgain, SetPods, Wait
from dledger_operator.spec.shape import Shape

KEPT = Unbegun(
    is_seen=True, pods=frozenset({"n0", "n1", "n2"}), running=frozenset(), unbound=frozenset(),
    asked_s=0.0, listed_s=0.0,
)  # fmt: skip


def blank(member_id: str, *unheard: str, **fields: Any) -> Any:
    values = {
        "term": 0, "leader_id": None, "ready": False, "joining": True, "ledger_begin_index": -1,
        "ledger_end_index": -1, "ledger_end_term": -1, "committed_index": -1,
        "unheard_voters": list(unheard),
    }  # fmt: skip
    return node_status(member_id, **values | fields)


def next_step(*known: Any, absent_s: float = 5.0) -> Any:
    return next_step_at(*known, absent_s=absent_s)


def five(pods: int) -> Shape:
    return replace(Shape.of_new(5), pods=pods)


STATEFUL_SET = StatefulSetView(
    namespace="air", name="flights", uid="uid", resource_version="1", generation=1, replicas=3,
    first_voters=5, identity="", volume_claim_templates=(),
)  # fmt: skip
WAITING = {each: blank(each, "n3", "n4") for each in ("n0", "n1", "n2")}


def reason(unbegun: Unbegun = KEPT, **answers: Any) -> str:
    found = next_step(3, five(3), unbegun, WAITING | answers)
    assert isinstance(found, Wait), found
    assert found.reason == "FoundingAgain"
    return found.message


@pytest.mark.parametrize(
    ("first", "replicas", "kept"),
    [(3, 1, 2), (5, 3, 3), (5, 1, 3), (7, 5, 5), (7, 3, 4), (7, 1, 4)],
)
def test_the_pods_that_are_not_to_vote_go_first_but_a_majority_stays(
    first: int, replicas: int, kept: int
) -> None:
    found = next_step(replicas, Shape.of_new(first), KEPT, {})

    assert found == SetPods(replicas=kept)


def test_a_group_begins_again_once_its_members_have_promised_nothing_and_cannot_vote() -> None:
    assert next_step(3, five(3), KEPT, WAITING) == FoundAgain(first_voters=3)


@pytest.mark.parametrize(
    "held", [{"ledger_end_index": 0}, {"committed_index": 0}, {"term": 1}, {"leader_id": "n4"}]
)
def test_a_group_in_which_a_member_held_something_is_never_founded_again(
    held: dict[str, Any],
) -> None:
    """It may have begun while no operator ran."""
    watch = Watch()

    assert not watch.may_have_begun(STATEFUL_SET, WAITING)
    assert watch.may_have_begun(STATEFUL_SET, WAITING | {"n1": blank("n1", "n3", **held)})
    assert watch.may_have_begun(STATEFUL_SET, WAITING), "that member may be silent now"
    assert not watch.may_have_begun(replace(STATEFUL_SET, uid="another"), WAITING)


def test_no_pod_goes_whose_member_runs_and_does_not_answer() -> None:
    """It may be one of a group that has begun."""
    running = replace(KEPT, running=frozenset({"n0", "n4"}))

    found = next_step(3, Shape.of_new(5), running, {"n0": WAITING["n0"]})

    assert "no answer from n4, whose containers run" in str(found)


def test_a_founding_is_not_superseded_while_a_removed_pod_may_still_run() -> None:
    leaving = replace(KEPT, pods=KEPT.pods | {"n4"})

    assert "the pods of n4 are not gone yet" in reason(leaving)
    assert "gone for less than 5 s" in str(next_step(3, five(3), KEPT, WAITING, absent_s=4.9))
    assert "has not seen its replicas" in reason(replace(KEPT, is_seen=False))


def test_each_member_that_is_kept_must_answer_unless_its_volume_was_never_bound() -> None:
    answers = {each: WAITING[each] for each in ("n0", "n1")}

    found = next_step(3, five(3), KEPT, answers)
    unbound = next_step(3, five(3), replace(KEPT, unbound=frozenset({"n2", "n4"})), answers)

    assert "n2 must run and say that its volume holds nothing" in str(found)
    assert unbound == FoundAgain(first_voters=3)


def test_members_that_could_elect_a_leader_among_them_are_not_stopped() -> None:
    heard = {each: blank(each, "n1") for each in ("n0", "n2")}
    voter = {"n1": blank("n1", joining=False)}

    message = reason(**heard, **voter)

    assert "n0, n1, n2 may elect a leader; if none is elected, delete the pods of n0, n2" in message
    assert next_step(3, five(3), KEPT, WAITING | voter) == FoundAgain(first_voters=3)


def test_a_member_of_an_earlier_release_does_not_say_whom_it_has_to_hear() -> None:
    silent = {each: blank(each) for each in ("n0", "n1", "n2")}

    assert "delete the pods of n0, n1, n2" in reason(**silent)


def test_only_a_new_group_that_is_to_have_fewer_members_is_founded_again() -> None:
    assert applies(3, Shape.of_new(5))
    assert not applies(5, Shape.of_new(3))
    assert not applies(3, Shape.of_new(3))
    assert not applies(3, replace(Shape.of_new(5), state=GroupState.EXISTING))


def test_the_absence_of_removed_pods_counts_from_when_none_was_seen() -> None:
    watch, made = Watch(), STATEFUL_SET

    def seconds(now_s: float, made: StatefulSetView = made, **changed: Any) -> float:
        known = replace(KEPT, asked_s=now_s, listed_s=now_s + 0.5, **changed)
        return watch.absent_s(made, known)

    assert seconds(1, pods=KEPT.pods | {"n3"}) == 0
    assert [seconds(2), seconds(4)] == [0, 1.5]
    assert [seconds(5, is_seen=False), seconds(6), seconds(7)] == [0, 0, 0.5]
    scaled = replace(made, generation=2)
    assert [seconds(8, scaled), seconds(10, scaled)] == [0, 1.5], "a pod may have come and gone"


def test_the_settings_change_once_before_another_stateful_set_is_made() -> None:
    """A founding that is recorded late, over what was read before, then conflicts."""
    assert fence("", "", again=False) == fence("u", "", again=False) == ""
    named = fence("u", "", again=True)
    assert named == "u"
    assert fence("u", named, again=False) == named
    after = fence("", named, again=True)
    assert after not in ("", named)
    assert fence("", after, again=True) == after, "a StatefulSet that is refused makes no loop"
    assert fence("v", after, again=False) == after
    assert fence("v", after, again=True) == "v"
