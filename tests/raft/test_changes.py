"""Membership changes at a leader: when it refuses them, and how it treats learners and removed
members.

The transcripts cover whole groups; these tests drive a single core.
"""

import pytest

from dledger_node.raft.member_state import Role
from dledger_node.raft.membership import (
    AddLearner,
    Change,
    Demote,
    Membership,
    MembershipEntry,
    Promote,
    Remove,
)
from dledger_node.raft.messages import (
    AppendRequest,
    HeartBeatRequest,
    TakeLeadershipRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.proposals import Proposal, RefusalReason
from dledger_node.raft.ready import WriteMembership
from dledger_node.raft.refusals import RefusalCause
from dledger_sim.stage.changing import confirm, leader, with_learner
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    CoreDriver,
    of_type,
    only,
)

# -- requests to a leader --------------------------------------------------------------------------


def test_a_change_becomes_an_entry_and_is_in_effect_at_once() -> None:
    driver = leader()
    answer = driver.raft.change_membership(AddLearner("n7"))
    driver.work()

    membership = Membership(("n0", "n1", "n2"), ("n7",))
    assert answer == Proposal(first_index=1, last_index=1, term=1)
    assert driver.writes[-1] == WriteMembership(index=1, term=1, membership=membership)
    assert driver.raft.membership == membership
    assert driver.raft.committed_index == 0


def test_only_a_leader_accepts_a_membership_change() -> None:
    assert CoreDriver().change(Remove("n1")) is RefusalReason.NOT_LEADER


def test_a_leader_refuses_a_change_before_an_entry_of_its_term_is_committed() -> None:
    driver = leader(settled=False)
    assert driver.change(Remove("n2")) is RefusalReason.TERM_NOT_COMMITTED


def test_a_leader_refuses_a_change_while_another_is_not_committed() -> None:
    driver = leader()
    assert driver.change(AddLearner("n7")) is None
    assert driver.change(AddLearner("n8")) is RefusalReason.MEMBERSHIP_CHANGING
    confirm(driver, "n1")
    assert driver.change(AddLearner("n8")) is None


def test_a_leader_refuses_a_change_during_a_leadership_transfer() -> None:
    driver = leader()
    driver.raft.transfer_leadership("n1")
    assert driver.change(AddLearner("n7")) is RefusalReason.LEADER_TRANSFERRING


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (AddLearner("n1"), RefusalReason.ALREADY_MEMBER),
        (AddLearner("n9"), RefusalReason.UNKNOWN_MEMBER),
        (Promote("n1"), RefusalReason.ALREADY_MEMBER),
        (Promote("n7"), RefusalReason.UNKNOWN_MEMBER),
        (Demote("n7"), RefusalReason.UNKNOWN_MEMBER),
        (Remove("n7"), RefusalReason.UNKNOWN_MEMBER),
    ],
)
def test_a_leader_refuses_a_change_that_does_not_fit_the_membership(
    change: Change, reason: RefusalReason
) -> None:
    assert leader().change(change) is reason


@pytest.mark.parametrize("change", [Remove("n0"), Demote("n0")])
def test_a_leader_refuses_to_demote_or_remove_the_last_voter(change: Change) -> None:
    assert leader(voter_count=1).change(change) is RefusalReason.LAST_VOTER


def test_a_leader_refuses_a_change_that_leaves_no_healthy_majority() -> None:
    driver = leader()
    for round_ in range(ELECTION_TICKS - 1):
        driver.tick()
        driver.receive(driver.heard_from("n1", 10 + round_))
    driver.tick(2)

    assert driver.change(Remove("n1")) is RefusalReason.QUORUM_AT_RISK
    assert driver.change(Remove("n2")) is None, "n2 is the silent member"


# -- learners --------------------------------------------------------------------------------------


def test_a_learner_receives_pushes_and_counts_in_no_quorum() -> None:
    driver = with_learner()
    sent = driver.propose()
    assert "n7" in [push.receiver for push in of_type(AppendRequest, sent)]
    confirm(driver, "n7")
    assert driver.raft.committed_index == 1
    confirm(driver, "n1")
    assert driver.raft.committed_index == 2


def test_entries_are_kept_for_a_silent_voter_and_for_a_learner_while_it_answers() -> None:
    """A learner that is lost never comes back, and the log would grow until the disk is full."""
    driver = with_learner()
    assert set(driver.raft.retaining_indexes()) == {"n1", "n2", "n7"}
    for round_ in range(2, 2 + ELECTION_TICKS):
        driver.tick()
        driver.receive(driver.heard_from("n1", 100 + round_))
    assert set(driver.raft.retaining_indexes()) == {"n1", "n2"}

    driver.receive(driver.heard_from("n7", 200))

    assert set(driver.raft.retaining_indexes()) == {"n1", "n2", "n7"}
    assert CoreDriver().raft.retaining_indexes() == {}


def test_entries_are_kept_for_a_silent_voter_whose_removal_is_not_committed() -> None:
    driver = leader()
    assert driver.change(Remove("n2")) is None
    for round_ in range(2, 2 + ELECTION_TICKS):
        driver.tick()
        driver.receive(driver.heard_from("n1", 100 + round_))

    assert "n2" in driver.raft.retaining_indexes()


def test_a_leader_that_only_learners_answer_steps_down() -> None:
    driver = with_learner()
    for round_ in range(2, 2 + ELECTION_TICKS):
        driver.tick()
        driver.receive(driver.heard_from("n7", 100 + round_))
    assert driver.raft.role is Role.FOLLOWER


def test_a_learners_answer_confirms_no_read() -> None:
    driver = with_learner()
    driver.raft.read_index("read")
    round_ = of_type(HeartBeatRequest, driver.work())[-1].round
    driver.receive(driver.heard_from("n7", round_))
    assert not driver.reads
    driver.receive(driver.heard_from("n1", round_))
    assert [read.handle for read in driver.reads] == ["read"]


def test_a_leader_does_not_hand_over_to_a_learner() -> None:
    driver = with_learner(voter_count=1)
    answer = driver.raft.transfer_leadership("n7")
    assert answer is not None
    assert answer.reason is RefusalReason.UNKNOWN_MEMBER
    assert driver.raft.fit_peer_ids == ()


def test_a_caught_up_learner_counts_from_its_promotion_on() -> None:
    driver = with_learner(voter_count=1)
    assert driver.raft.committed_index == 1
    assert driver.change(Promote("n7")) is None
    driver.work()
    driver.flush()
    assert driver.raft.committed_index == 1, "one of two voters is not a majority"
    confirm(driver, "n7")
    assert driver.raft.committed_index == 2


@pytest.mark.parametrize(("lag", "reason"), [(2, None), (3, RefusalReason.FALL_BEHIND_TOO_MUCH)])
def test_a_leader_does_not_promote_a_learner_that_lags_too_far(
    lag: int, reason: RefusalReason | None
) -> None:
    driver = with_learner(lag_max=2)
    driver.propose(lag)
    assert driver.change(Promote("n7")) is reason


def test_a_leader_does_not_promote_a_joining_learner() -> None:
    """It cannot vote, so a group of one would wait for it forever after the next crash."""
    driver = with_learner(voter_count=1)
    driver.receive(driver.heard_from("n7", 9, joining=True))
    assert driver.change(Promote("n7")) is RefusalReason.FALL_BEHIND_TOO_MUCH
    driver.receive(driver.heard_from("n7", 10))
    assert driver.change(Promote("n7")) is None


def test_a_learner_does_not_stand_for_election() -> None:
    driver = CoreDriver(
        terms=[1, 1], self_id="n7", addable_ids=("n7",), committed_index=1,
        memberships=[MembershipEntry(1, Membership(("n0", "n1", "n2"), ("n7",)))],
    )  # fmt: skip
    driver.tick(10 * ELECTION_TICKS)
    assert driver.raft.role is Role.FOLLOWER
    driver.receive(heartbeat_to("n7", 2))
    driver.receive(TakeLeadershipRequest(sender="n1", receiver="n7", term=2))
    assert driver.raft.role is Role.FOLLOWER
    assert driver.raft.refusals[RefusalCause.NO_VOTER] == 1


def heartbeat_to(receiver: str, term: int) -> HeartBeatRequest:
    return HeartBeatRequest(sender="n1", receiver=receiver, term=term, committed_index=-1, round=1)


def test_a_learner_votes_for_a_candidate_that_counts_it() -> None:
    """The candidate may be the only member with the entry that promotes it. If the group needs both
    votes, it could never elect a leader without this one.
    """
    driver = CoreDriver(
        terms=[1], self_id="n7", voter_count=1, addable_ids=("n7",),
        memberships=[MembershipEntry(0, Membership(("n0",), ("n7",)))],
    )  # fmt: skip
    request = VoteRequest(sender="n0", receiver="n7", term=2, ledger_end_index=1, ledger_end_term=1)
    vote = only(VoteResponse, driver.receive(request))
    assert vote.result is VoteResult.ACCEPT


# -- removal ---------------------------------------------------------------------------------------


def test_a_leader_that_removes_itself_does_not_count_itself() -> None:
    driver = leader()
    assert driver.change(Remove("n0")) is None
    driver.work()
    confirm(driver, "n1")
    assert driver.raft.committed_index == 0
    assert driver.raft.role is Role.LEADER


def test_a_leader_that_removed_itself_hands_over_once_the_removal_is_committed() -> None:
    driver = leader()
    assert driver.change(Remove("n0")) is None
    driver.work()
    sent = confirm(driver, "n2", "n1")
    assert driver.raft.committed_index == 1
    assert only(TakeLeadershipRequest, sent).receiver == "n1"
    assert (driver.raft.role, driver.raft.leader_id) == (Role.FOLLOWER, None)
    driver.tick(10 * ELECTION_TICKS)
    assert driver.raft.role is Role.FOLLOWER


def test_a_leader_that_is_demoted_becomes_a_follower() -> None:
    driver = leader()
    assert driver.change(Demote("n0")) is None
    driver.work()
    confirm(driver, "n1", "n2")
    assert driver.raft.role is Role.FOLLOWER


def test_a_removed_member_receives_its_removal_and_then_nothing() -> None:
    driver = leader()
    assert driver.change(Remove("n2")) is None
    driver.work()
    confirm(driver, "n1", "n2")
    last = [one for one in driver.tick(HEARTBEAT_TICKS) if one.receiver == "n2"]
    assert only(HeartBeatRequest, last).committed_index == 1
    assert not [one for one in driver.tick(3 * HEARTBEAT_TICKS) if one.receiver == "n2"]


def test_a_leader_drops_a_removed_member_that_stays_silent() -> None:
    driver = leader()
    assert driver.change(Remove("n2")) is None
    driver.work()
    confirm(driver, "n1")
    for round_ in range(2 * ELECTION_TICKS):
        driver.tick()
        driver.receive(driver.heard_from("n1", 10 + round_))
    assert "n2" not in driver.raft.match_indexes()
    assert driver.raft.role is Role.LEADER


def test_a_leader_drops_a_removed_member_even_if_the_removal_entry_is_gone() -> None:
    """Found by seed 988: the leader must not wait until the member holds that entry."""
    driver = leader()
    driver.change(Remove("n2"))
    driver.propose()
    confirm(driver, "n1")
    driver.raft.remove_before(2)
    driver.tick(HEARTBEAT_TICKS)
    assert "n2" not in driver.raft.match_indexes()


def test_confirmations_from_before_a_removal_do_not_count_after_a_return() -> None:
    driver = leader()
    driver.change(Remove("n2"))
    driver.work()
    confirm(driver, "n1")
    assert driver.change(AddLearner("n2")) is None
    assert driver.raft.match_indexes()["n2"] == -1
    confirm(driver, "n1")
    assert driver.change(Promote("n2")) is RefusalReason.FALL_BEHIND_TOO_MUCH
