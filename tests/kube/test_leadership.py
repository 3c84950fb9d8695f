"""Determining the leader from the members' answers."""

import pytest

from dledger_kube.objects import leads, membership, pod, says, silent
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.leader.leadership import disproved, leaders_of_highest_term
from dledger_operator.observed_state import Leader, Observation

VOTERS = membership()
PODS = [pod(0), pod(1), pod(2)]


def leaders(observations: list[Observation], pods: list[PodView] | None = None) -> list[Leader]:
    return leaders_of_highest_term(pods or PODS, observations, VOTERS)


def test_a_leader_that_has_proved_itself_counts() -> None:
    assert leaders([leads(1, 7), says(0, 7), says(2, 7)]) == [Leader(term=7, member_id="n1")]


def test_a_leader_that_has_not_committed_its_first_entry_does_not_count() -> None:
    assert leaders([says(1, 7), says(0, 7, "n1"), says(2, 7, "n1")]) == []


def test_a_leader_named_by_a_single_follower_does_not_count() -> None:
    assert leaders([says(0, 7, "n1")]) == []


def test_the_highest_term_wins_over_a_deposed_leader_that_is_cut_off() -> None:
    assert leaders([leads(0, 6), leads(1, 7)]) == [Leader(term=7, member_id="n1")]


def test_a_leader_does_not_count_once_a_majority_is_in_a_later_term() -> None:
    assert leaders([leads(0, 6), says(1, 7), says(2, 7)]) == []


def test_one_member_that_campaigns_alone_does_not_depose_a_leader() -> None:
    assert leaders([leads(0, 6), says(1, 6, "n0"), says(2, 99)]) == [Leader(term=6, member_id="n0")]


def test_the_terms_of_silent_members_still_count() -> None:
    assert leaders([leads(0, 6), silent(1, 7), silent(2, 7)]) == []


def test_a_term_below_the_term_annotation_of_a_pod_does_not_count() -> None:
    labeled = [pod(0, term=8), pod(1), pod(2)]

    assert leaders([leads(1, 7)], labeled) == []


def test_a_silent_leader_counts_if_a_majority_names_it() -> None:
    answers = [silent(1, 7), says(0, 7, "n1"), says(2, 7, "n1")]

    assert leaders(answers) == [Leader(term=7, member_id="n1")]


def test_a_silent_leader_does_not_count_if_its_pod_is_not_ready() -> None:
    pods = [pod(0), pod(1, ready=False), pod(2)]

    assert leaders([says(0, 7, "n1"), says(2, 7, "n1")], pods) == []


def test_a_silent_leader_does_not_count_if_members_name_it_in_different_terms() -> None:
    assert leaders([says(0, 6, "n1"), says(2, 7, "n1")]) == []


def test_the_answer_of_a_pod_does_not_count_for_its_replacement() -> None:
    replaced = [pod(0), pod(1, uid="another"), pod(2)]

    assert leaders([leads(1, 7)], replaced) == []


def test_the_last_claim_of_a_silent_leader_does_not_count() -> None:
    assert leaders([leads(1, 7, answers=False)]) == []


def test_two_leaders_of_one_term_are_both_returned() -> None:
    assert len(leaders([leads(0, 7), leads(1, 7)])) == 2


@pytest.mark.parametrize(
    ("observations", "expected"),
    [
        pytest.param([], False, id="no answers"),
        pytest.param([silent(1, 7, "n1")], False, id="the master is silent"),
        pytest.param([leads(1, 7)], False, id="the master claims to lead"),
        pytest.param([says(1, 6)], False, id="the answer is older than the label"),
        pytest.param([says(1, 7)], True, id="the master has stepped down"),
        pytest.param([says(1, 8, "n0")], True, id="the master follows another leader"),
        pytest.param([says(0, 8)], False, id="one member is in a later term"),
        pytest.param([says(0, 8), silent(2, 8)], True, id="a majority is in a later term"),
    ],
)
def test_a_labeled_master_is_disproved_by_its_own_answer_or_by_a_majority(
    observations: list[Observation], expected: bool
) -> None:
    assert disproved(pod(1, "master", 7), observations, VOTERS) is expected
