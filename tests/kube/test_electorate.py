"""Who votes and who learns, from what members say."""

from dledger_kube.objects import electorate, group, leader_status, node_status
from dledger_operator.behaviours.members.electorate import heard, remembered

BEFORE = electorate(3)


def test_the_leader_of_the_highest_term_is_believed() -> None:
    deposed = leader_status("n0", term=6, voters=["n0"])
    leading = leader_status("n1", term=7, voters=["n0", "n1"], learners=["n2"])
    follower = node_status("n2", term=8, voters=["n9"])

    after = heard([deposed, leading, follower], BEFORE)

    assert (after.voters, after.learners) == (frozenset({"n0", "n1"}), frozenset({"n2"}))


def test_without_a_leader_it_stays_as_it_was() -> None:
    assert heard([node_status("n0", voters=["n0"])], BEFORE) == BEFORE


def test_a_leader_of_an_earlier_version_changes_nothing() -> None:
    assert heard([leader_status()], BEFORE) == BEFORE


def test_a_status_remembers_who_voted() -> None:
    members = [
        {"id": "n0", "membership": "Voter"},
        {"id": "n1", "membership": "Learner"},
        {"id": "n2", "membership": "None"},
    ]

    after = remembered({"members": members}, group(replicas=7))

    assert (after.voters, after.learners) == (frozenset({"n0"}), frozenset({"n1"}))


def test_a_status_of_an_earlier_version_knew_voters_alone() -> None:
    status = {"members": [{"id": "n0"}, {"id": "n1"}, {"id": "n2"}]}

    assert remembered(status, group(replicas=5)) == electorate(3)


def test_a_new_group_has_the_voters_that_it_asks_for() -> None:
    assert remembered({}, group(replicas=5)) == electorate(5)
