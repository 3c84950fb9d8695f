"""Which pods are a group's members, and which term annotations are forged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_kube.objects import STATEFUL_SET_UID, leads, membership, node_status, pod, says
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.leader.member_pods import forged, is_member, overstated

VOTERS = membership(3)
TERMS = st.lists(st.integers(0, 9), min_size=3, max_size=3)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod(0), True),
        (pod(6), True),
        (pod(7), False),
        (pod(99999999), False),
        (pod(0, owner_uid=""), False),
        (pod(0, owner_uid="another"), False),
        (pod(0, name="stranger-0"), False),
        (pod(0, name="flights-00"), False),
    ],
)
def test_a_member_has_an_ordinal_and_the_stateful_set_as_owner(
    found: PodView, expected: bool
) -> None:
    assert is_member(found, "flights", {STATEFUL_SET_UID}) is expected


def test_no_pod_is_a_member_without_a_stateful_set() -> None:
    assert not is_member(pod(0, owner_uid=""), "flights", {""})


@given(annotated=TERMS, reached=TERMS)
def test_an_annotation_is_forged_only_above_the_term_of_every_member(
    annotated: list[int], reached: list[int]
) -> None:
    pods = [pod(k, term=term) for k, term in enumerate(annotated)]
    answers = {f"uid-{k}": node_status(f"n{k}", term=term) for k, term in enumerate(reached)}

    term, wrong = forged(pods, answers, VOTERS)

    assert term == max(reached)
    assert {each.name for each in wrong} == {
        f"flights-{k}" for k, each in enumerate(annotated) if each > max(reached)
    }


@pytest.mark.parametrize("silent", range(3))
def test_nothing_is_forged_while_a_voter_does_not_answer(silent: int) -> None:
    pods = [pod(k, term=99) for k in range(3)]
    answers = {f"uid-{k}": node_status(f"n{k}") for k in range(3) if k != silent}

    assert forged(pods, answers, VOTERS) == (-1, ())
    assert forged([each for each in pods if each.member_id != f"n{silent}"], answers, VOTERS) == (
        -1, (),
    )  # fmt: skip


def test_nothing_is_forged_while_a_voter_that_only_a_member_knows_does_not_answer() -> None:
    answers = {f"uid-{k}": node_status(f"n{k}", voters=["n0", "n1", "n2", "n4"]) for k in range(3)}

    assert forged([pod(k, term=99) for k in range(3)], answers, VOTERS) == (-1, ())


def test_pods_that_are_no_voters_need_not_answer() -> None:
    """While a group grows, the pods of new members may wait for a node or a volume."""
    pods = [pod(0, term=99), pod(1), pod(2), pod(3, ip=""), pod(4)]
    answers = {f"uid-{k}": node_status(f"n{k}") for k in range(3)}

    term, wrong = forged(pods, answers, VOTERS)

    assert (term, [each.name for each in wrong]) == (7, ["flights-0"])


def test_the_annotation_of_a_pod_that_cannot_answer_yet_is_forged_once_all_voters_say_so() -> None:
    pods = [pod(0), pod(1), pod(2), pod(3, ip="", term=99)]
    answers = {f"uid-{k}": node_status(f"n{k}") for k in range(3)}

    assert [each.name for each in forged(pods, answers, VOTERS)[1]] == ["flights-3"]


def test_nothing_is_forged_while_a_running_member_that_is_annotated_does_not_answer() -> None:
    """It may lead that term, if the voters that the operator knows are out of date."""
    pods = [pod(0, term=99), pod(1), pod(2), pod(3, term=99)]
    answers = {f"uid-{k}": node_status(f"n{k}") for k in range(3)}

    assert forged(pods, answers, VOTERS) == (-1, ())


def test_only_an_annotation_that_hides_a_leader_is_overstated() -> None:
    observed = [says(0, 7, "n1"), leads(1, 7), says(2, 7, "n1")]
    high = [pod(0, term=99), pod(1, term=7), pod(2, term=7)]

    assert [each.name for each in overstated(high, observed, VOTERS)] == ["flights-0"]
    assert overstated(high, [says(0, 7), says(1, 7)], VOTERS) == ()
    assert overstated([pod(k, term=7) for k in range(3)], observed, VOTERS) == ()
