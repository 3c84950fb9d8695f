"""The decisions of which relabeling consists."""

from dledger_kube.objects import group, leads, membership, pod, says, silent
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.leader.role_decision import Decision, decide
from dledger_operator.observed_state import Leader, Membership, Observation
from dledger_operator.spec.group import Group

GROUP = group()
VOTERS = membership()
NO_PODS: frozenset[str] = frozenset()


def step(
    pods: list[PodView],
    observations: list[Observation],
    not_following: frozenset[str] = NO_PODS,
    of: Group = GROUP,
    voters: Membership = VOTERS,
) -> Decision:
    return decide(
        pods=pods,
        observations=observations,
        group=of,
        membership=voters,
        not_following=not_following,
    )


def patches(decision: Decision) -> dict[str, tuple[str, int]]:
    return {patch.pod.member_id: (patch.role, patch.term) for patch in decision.patches}


def test_the_old_master_is_demoted_before_the_new_one_is_promoted() -> None:
    pods = [pod(0, "master", 6), pod(1, "slave", 6), pod(2, "slave", 6)]
    answers = [silent(0, 6, "n0"), leads(1, 7), says(2, 7, "n1")]

    first = patches(step(pods, answers))

    assert first == {"n0": ("none", 7), "n2": ("slave", 7)}

    fenced = [pod(0, "none", 7), pod(1, "slave", 6), pod(2, "slave", 7)]

    assert patches(step(fenced, answers)) == {"n1": ("master", 7)}


def test_correct_labels_need_no_patch() -> None:
    pods = [pod(0, "slave", 7), pod(1, "master", 7), pod(2, "slave", 7)]

    assert patches(step(pods, [says(0, 7, "n1"), leads(1, 7), says(2, 7, "n1")])) == {}


def test_a_missing_pod_does_not_delay_the_promotion() -> None:
    pods = [pod(1, "slave", 7), pod(2, "slave", 7)]

    assert patches(step(pods, [leads(1, 7), says(2, 7, "n1")])) == {"n1": ("master", 7)}


def test_every_other_pod_is_fenced_with_the_term_even_when_its_role_stays() -> None:
    pods = [pod(0, "slave", 6), pod(1, "master", 6), pod(2, "slave", 6)]
    answers = [says(0, 7, "n1"), leads(1, 7), says(2, 7, "n1")]

    assert patches(step(pods, answers)) == {"n0": ("slave", 7), "n2": ("slave", 7)}


def test_a_follower_that_loses_the_leader_stays_a_slave_until_its_timeout() -> None:
    pods = [pod(0, "slave", 7), pod(1, "master", 7), pod(2, "slave", 7)]
    answers = [says(0, 7, "n1"), leads(1, 7), silent(2, 7, "n1")]

    assert patches(step(pods, answers)) == {}
    assert patches(step(pods, answers, not_following=frozenset({"uid-2"}))) == {"n2": ("none", 7)}


def test_a_new_pod_becomes_a_slave_only_once_it_follows() -> None:
    pods = [pod(0), pod(1, "master", 7), pod(2, "slave", 7)]

    joining = patches(step(pods, [says(0, 6), leads(1, 7), says(2, 7, "n1")]))

    assert joining == {"n0": ("none", 7)}


def test_a_follower_labeled_as_master_is_labeled_as_slave_again() -> None:
    pods = [pod(0, "slave", 7), pod(1, "master", 7), pod(2, "master", 7)]

    tampered = patches(step(pods, [says(0, 7, "n1"), leads(1, 7), says(2, 7, "n1")]))

    assert tampered == {"n2": ("slave", 7)}


def test_a_leader_whose_pod_is_leaving_is_not_promoted() -> None:
    pods = [pod(0, "none", 7), pod(1, "slave", 7, leaving=True), pod(2, "slave", 7)]

    assert patches(step(pods, [leads(1, 7), says(2, 7, "n1")])) == {}


def test_a_leader_whose_pod_is_leaving_keeps_its_label_until_another_leads() -> None:
    pods = [pod(0, "slave", 7), pod(1, "master", 7, leaving=True), pod(2, "slave", 7)]

    assert patches(step(pods, [says(0, 7, "n1"), leads(1, 7), says(2, 7, "n1")])) == {}


def test_a_master_that_stepped_down_is_demoted_before_there_is_a_new_leader() -> None:
    pods = [pod(0, "slave", 6), pod(1, "master", 6), pod(2, "slave", 6)]

    assert patches(step(pods, [says(1, 6)])) == {"n1": ("none", 6)}


def test_a_silent_master_keeps_its_label_until_there_is_a_new_leader() -> None:
    pods = [pod(0, "slave", 6), pod(1, "master", 6), pod(2, "slave", 6)]

    assert patches(step(pods, [says(0, 6, "n1"), silent(1, 6, "n1")])) == {}


def test_slaves_stay_slaves_while_there_is_no_leader() -> None:
    pods = [pod(0, "slave", 6), pod(1, "none", 6), pod(2, "slave", 6)]
    not_following = frozenset({"uid-0", "uid-2"})

    assert patches(step(pods, [says(0, 7), says(2, 7)], not_following)) == {}


def test_no_pod_is_master_while_two_members_claim_one_term() -> None:
    pods = [pod(0, "master", 7), pod(1, "slave", 7), pod(2, "slave", 7)]

    decision = step(pods, [leads(0, 7), leads(1, 7)])

    assert decision.disputed
    assert patches(decision) == {"n0": ("none", 7)}


def test_a_groups_own_role_values_are_used() -> None:
    renamed = group(roles={"label": "example.com/part", "master": "rw", "slave": "ro"})
    pods = [pod(0, labels={"example.com/part": "ro"}, term=7), pod(1, term=7), pod(2, term=7)]

    decision = step(pods, [says(0, 7, "n1"), leads(1, 7)], of=renamed)

    assert patches(decision) == {"n2": ("none", 7)}


def test_a_group_of_one_promotes_its_only_member() -> None:
    assert patches(step([pod(0)], [leads(0, 1)], of=group(replicas=1))) == {"n0": ("master", 1)}


def test_members_that_do_not_vote_count_in_no_majority() -> None:
    pods = [pod(ordinal) for ordinal in range(5)]
    named = [silent(1, 7), says(0, 7, "n1"), says(3, 7, "n1"), says(4, 7, "n1")]
    later = [leads(1, 7), says(0, 8), says(3, 8), says(4, 8)]

    assert step(pods, named).leader is None
    assert step(pods, later).leader == Leader(term=7, member_id="n1")


def test_a_leader_that_was_promoted_just_now_is_followed() -> None:
    pods = [pod(ordinal) for ordinal in range(4)]
    answers = [leads(3, 8), *(says(ordinal, 8, "n3") for ordinal in range(3))]

    assert step(pods, answers).leader == Leader(term=8, member_id="n3")


def test_a_learner_is_not_a_slave() -> None:
    pods = [pod(0, "slave", 7), pod(1, "master", 7), pod(2, "slave", 7), pod(3)]
    answers = [leads(1, 7), *(says(ordinal, 7, "n1") for ordinal in (0, 2, 3))]

    learning = step(pods, answers, voters=membership(3, learners=("n3",)))
    voting = step(pods, answers, voters=membership(4))

    assert patches(learning) == {"n3": ("none", 7)}
    assert patches(voting) == {"n3": ("slave", 7)}


def test_a_removed_member_leaves_the_slave_service_at_once() -> None:
    pods = [pod(1, "master", 7), *(pod(ordinal, "slave", 7) for ordinal in (0, 2, 3))]
    answers = [leads(1, 7), *(says(ordinal, 7, "n1") for ordinal in (0, 2, 3))]

    assert patches(step(pods, answers, voters=membership(3))) == {"n3": ("none", 7)}
