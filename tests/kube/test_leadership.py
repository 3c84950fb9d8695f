"""Whom to believe."""

import pytest

from dledger_kube.objects import electorate, leads, pod, says, silent
from dledger_operator.behaviours.leader.leadership import disproved, leaders_of_highest_term
from dledger_operator.facts import Leader, Observation
from dledger_operator.views import PodView

VOTERS = electorate()
PODS = [pod(0), pod(1), pod(2)]


def leaders(observations: list[Observation], pods: list[PodView] | None = None) -> list[Leader]:
    return leaders_of_highest_term(pods or PODS, observations, VOTERS)


def test_a_leader_that_proves_itself_is_believed() -> None:
    assert leaders([leads(1, 7), says(0, 7), says(2, 7)]) == [Leader(term=7, member_id="n1")]


def test_a_leader_that_has_not_committed_its_first_entry_is_not_believed() -> None:
    assert leaders([says(1, 7), says(0, 7, "n1"), says(2, 7, "n1")]) == []


def test_a_follower_that_names_a_leader_is_not_believed_alone() -> None:
    assert leaders([says(0, 7, "n1")]) == []


def test_the_highest_term_wins_over_an_old_leader_that_is_cut_off() -> None:
    assert leaders([leads(0, 6), leads(1, 7)]) == [Leader(term=7, member_id="n1")]


def test_a_leader_that_a_majority_has_left_behind_is_not_believed() -> None:
    assert leaders([leads(0, 6), says(1, 7), says(2, 7)]) == []


def test_one_member_that_campaigns_alone_does_not_depose_a_leader() -> None:
    assert leaders([leads(0, 6), says(1, 6, "n0"), says(2, 99)]) == [Leader(term=6, member_id="n0")]


def test_the_terms_of_members_that_fell_silent_still_count() -> None:
    assert leaders([leads(0, 6), silent(1, 7), silent(2, 7)]) == []


def test_no_term_below_one_that_was_acted_upon_is_believed() -> None:
    relabelled = [pod(0, term=8), pod(1), pod(2)]

    assert leaders([leads(1, 7)], relabelled) == []


def test_a_silent_leader_is_believed_when_a_majority_names_it() -> None:
    heard = [silent(1, 7), says(0, 7, "n1"), says(2, 7, "n1")]

    assert leaders(heard) == [Leader(term=7, member_id="n1")]


def test_a_silent_leader_is_not_believed_when_its_pod_is_not_ready() -> None:
    pods = [pod(0), pod(1, ready=False), pod(2)]

    assert leaders([says(0, 7, "n1"), says(2, 7, "n1")], pods) == []


def test_a_silent_leader_is_not_believed_when_members_name_it_in_different_terms() -> None:
    assert leaders([says(0, 6, "n1"), says(2, 7, "n1")]) == []


def test_what_a_pod_said_does_not_speak_for_the_pod_that_replaced_it() -> None:
    replaced = [pod(0), pod(1, uid="another"), pod(2)]

    assert leaders([leads(1, 7)], replaced) == []


def test_the_last_word_of_a_leader_that_fell_silent_is_not_believed() -> None:
    last_word = leads(1, 7)
    fell_silent = Observation(
        pod_uid=last_word.pod_uid,
        member_id=last_word.member_id,
        answers=False,
        term=last_word.term,
        leader_id=last_word.leader_id,
        master=last_word.master,
    )

    assert leaders([fell_silent]) == []


def test_two_leaders_of_one_term_are_both_named() -> None:
    assert len(leaders([leads(0, 7), leads(1, 7)])) == 2


@pytest.mark.parametrize(
    ("observations", "expected"),
    [
        pytest.param([], False, id="nothing is known"),
        pytest.param([silent(1, 7, "n1")], False, id="it is silent"),
        pytest.param([leads(1, 7)], False, id="it says that it leads"),
        pytest.param([says(1, 6)], False, id="what it says is older than its label"),
        pytest.param([says(1, 7)], True, id="it has stepped down"),
        pytest.param([says(1, 8, "n0")], True, id="it follows another"),
        pytest.param([says(0, 8)], False, id="one member is in a later term"),
        pytest.param([says(0, 8), silent(2, 8)], True, id="a majority is in a later term"),
    ],
)
def test_a_labelled_master_is_disproved_by_its_own_word_or_by_a_majority(
    observations: list[Observation], expected: bool
) -> None:
    assert disproved(pod(1, "master", 7), observations, VOTERS) is expected
