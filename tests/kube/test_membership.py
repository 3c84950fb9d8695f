"""A group's voters and learners, from the leader's report or the group's status."""

from dledger_kube.objects import group, leader_status, membership, node_status
from dledger_operator.behaviours.members.membership import recorded_membership, reported_membership

PREVIOUS = membership(3)


def test_the_leader_of_the_highest_term_determines_the_membership() -> None:
    deposed = leader_status("n0", term=6, voters=["n0"])
    leading = leader_status("n1", term=7, voters=["n0", "n1"], learners=["n2"])
    follower = node_status("n2", term=8, voters=["n9"])

    after = reported_membership([deposed, leading, follower], PREVIOUS)

    assert (after.voters, after.learners) == (frozenset({"n0", "n1"}), frozenset({"n2"}))


def test_the_membership_stays_the_same_without_a_leader() -> None:
    assert reported_membership([node_status("n0", voters=["n0"])], PREVIOUS) == PREVIOUS


def test_a_report_without_voters_is_ignored() -> None:
    assert reported_membership([leader_status()], PREVIOUS) == PREVIOUS


def test_the_status_records_voters_and_learners() -> None:
    members = [
        {"id": "n0", "membership": "Voter"},
        {"id": "n1", "membership": "Learner"},
        {"id": "n2", "membership": "None"},
    ]

    after = recorded_membership({"members": members}, group(replicas=7))

    assert (after.voters, after.learners) == (frozenset({"n0"}), frozenset({"n1"}))


def test_the_members_of_the_spec_are_the_voters_of_a_group_without_a_status() -> None:
    assert recorded_membership({}, group(replicas=5)) == membership(5)
