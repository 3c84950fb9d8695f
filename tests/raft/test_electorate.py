"""Candidacies, votes and joining while members know different memberships."""

from dledger_node.raft.member_state import Role
from dledger_node.raft.membership import (
    Membership,
    MembershipEntry,
    Remove,
)
from dledger_node.raft.messages import (
    JoinRequest,
    JoinResponse,
    PreVoteRequest,
    PreVoteResponse,
    PushResponse,
    PushResult,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.refusals import RefusalCause
from dledger_sim.stage.changing import confirm, leader
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    INCARNATION,
    CoreDriver,
    append,
    heartbeat,
    of_type,
    only,
    vote_request,
)

THREE = Membership(("n0", "n1", "n2"))
WITHOUT_N0 = Membership(("n1", "n2"))


# -- candidates ------------------------------------------------------------------------------------


def removed_n0(*, committed_index: int) -> CoreDriver:
    return CoreDriver(
        terms=[1, 1], committed_index=committed_index,
        memberships=[MembershipEntry(1, WITHOUT_N0)],
    )  # fmt: skip


def test_a_member_that_knows_of_its_removal_does_not_stand() -> None:
    driver = removed_n0(committed_index=1)
    sent = driver.tick(10 * ELECTION_TICKS)
    assert not of_type(PreVoteRequest, sent)
    assert driver.raft.role is Role.FOLLOWER


def test_a_member_that_is_being_removed_stands_without_its_own_vote() -> None:
    driver = removed_n0(committed_index=0)
    asked = of_type(PreVoteRequest, driver.tick(ELECTION_TICKS))
    assert [request.receiver for request in asked] == ["n1", "n2"]
    driver.receive(driver.pre_vote_from("n1"))
    assert driver.raft.term == 1, "one pre-vote of two voters is not enough"
    driver.receive(driver.pre_vote_from("n2"))
    assert driver.raft.term == 2


def test_a_candidate_does_not_count_the_vote_of_a_non_voter() -> None:
    driver = CoreDriver(addable_ids=("n7",))
    driver.tick(ELECTION_TICKS)
    driver.receive(driver.pre_vote_from("n7"))
    assert driver.raft.term == 0
    driver.receive(driver.pre_vote_from("n1"))
    driver.receive(driver.vote_from("n7"))
    assert driver.raft.role is Role.CANDIDATE
    driver.receive(driver.vote_from("n1"))
    assert driver.raft.role is Role.LEADER


def test_a_member_votes_for_a_candidate_outside_its_membership() -> None:
    """This member may lack the entry that made the candidate a voter."""
    driver = CoreDriver(terms=[1], addable_ids=("n7",))
    sent = driver.receive(vote_request(2, sender="n7", end=(1, 1)))
    assert only(VoteResponse, sent).result is VoteResult.ACCEPT


def test_a_candidate_outside_the_membership_does_not_depose_a_live_leader() -> None:
    driver = CoreDriver(terms=[1], addable_ids=("n7",))
    driver.receive(heartbeat(1))
    assert not driver.receive(vote_request(9, sender="n7", end=(1, 1)))
    asked = PreVoteRequest(
        sender="n7", receiver="n0", term=8, ledger_end_index=1, ledger_end_term=1
    )
    promise = only(PreVoteResponse, driver.receive(asked))
    assert promise.result is VoteResult.REJECT_ALREADY_HAS_LEADER
    assert driver.raft.term == 1


def test_a_member_follows_a_leader_outside_its_membership() -> None:
    driver = CoreDriver(terms=[1], addable_ids=("n7",))
    driver.receive(heartbeat(2, sender="n7"))
    assert driver.raft.leader_id == "n7"


def test_a_response_from_outside_the_group_does_not_depose_a_leader() -> None:
    driver = leader()
    driver.receive(PushResponse(
        sender="n7", receiver="n0", term=9, requested_term=1, result=PushResult.EXPIRED_TERM,
        match_index=-1, ledger_end_index=0,
    ))  # fmt: skip
    driver.receive(driver.success_from("n7", 0))
    assert (driver.raft.role, driver.raft.term) == (Role.LEADER, 1)
    assert driver.raft.refusals[RefusalCause.UNKNOWN_MEMBER] == 2


# -- joining ---------------------------------------------------------------------------------------


def told(
    sender: str, term: int, *memberships: Membership, leading: bool = False, joining: bool = False
) -> JoinResponse:
    return JoinResponse(
        sender=sender, receiver="n0", term=term, incarnation=INCARNATION, ledger_end_index=0,
        leading=leading, joining=joining, alone=False, memberships=memberships,
    )  # fmt: skip


def joins(driver: CoreDriver) -> bool:
    """Return whether a member is still joining after its leader pushes up to the reported end."""
    driver.receive(append(3, (-1, -1), 0, sender="n1"))
    driver.flush()
    return bool(driver.raft.joining)


def test_a_joining_member_needs_answers_from_its_leaders_members() -> None:
    """n2, one of the first voters, is gone for good; n8 has replaced it."""
    driver = CoreDriver(joining=True, addable_ids=("n8",))
    asked = [request.receiver for request in of_type(JoinRequest, driver.tick())]
    assert asked == ["n1", "n2", "n8"]
    driver.receive(told("n1", 3, Membership(("n1", "n8"), ("n0",)), leading=True))
    assert joins(driver)
    driver.receive(told("n8", 3))
    assert not joins(driver)


def test_during_a_change_a_joining_member_needs_answers_from_both_memberships() -> None:
    driver = CoreDriver(joining=True)
    driver.receive(
        told("n1", 3, Membership(("n0", "n1", "n2")), Membership(("n0", "n1")), leading=True)
    )
    assert joins(driver)
    driver.receive(told("n2", 4))
    assert joins(driver), "n2 stood in term 4, perhaps with the earlier incarnation's vote"


def test_a_joining_member_needs_answers_from_learners_too() -> None:
    driver = CoreDriver(joining=True, addable_ids=("n7",))
    driver.receive(told("n1", 3, Membership(("n0", "n1"), ("n7",)), leading=True))
    assert joins(driver)
    driver.receive(told("n7", 3))
    assert not joins(driver)


def test_a_group_not_declared_new_waits_until_all_addable_members_are_blank() -> None:
    driver = CoreDriver(joining=True, addable_ids=("n7",))
    blank = [
        JoinResponse(
            sender=peer_id, receiver="n0", term=0, incarnation=INCARNATION, ledger_end_index=-1,
            leading=False, joining=True, alone=False,
        )
        for peer_id in ("n1", "n2", "n7")
    ]  # fmt: skip
    driver.receive(blank[0])
    driver.receive(blank[1])
    assert driver.raft.joining, "n7 may hold the log"
    driver.receive(blank[2])
    assert not driver.raft.joining


def blank(peer_id: str, *, end_index: int = -1) -> JoinResponse:
    return JoinResponse(
        sender=peer_id, receiver="n0", term=0, incarnation=INCARNATION,
        ledger_end_index=end_index, leading=False, joining=True, alone=False,
    )  # fmt: skip


def test_a_declared_new_group_waits_only_for_its_first_voters() -> None:
    driver = CoreDriver(joining=True, addable_ids=("n7",), new_group=True)
    driver.receive(blank("n1"))
    assert driver.raft.joining
    driver.receive(blank("n2"))
    assert not driver.raft.joining


def test_a_group_is_not_new_if_any_answer_reports_a_log() -> None:
    driver = CoreDriver(joining=True, addable_ids=("n7",), new_group=True)
    for said in (blank("n7", end_index=3), blank("n1"), blank("n2")):
        driver.receive(said)
    assert driver.raft.joining


def test_the_only_first_voter_asks_the_addable_members_for_an_election_timeout() -> None:
    driver = CoreDriver(joining=True, voter_count=1, addable_ids=("n7", "n8"), new_group=True)

    asked = {each.receiver for each in of_type(JoinRequest, driver.tick())}
    driver.tick(ELECTION_TICKS - 2)

    assert asked == {"n7", "n8"}
    assert driver.raft.joining
    driver.tick(1)
    assert not driver.raft.joining


def test_the_only_first_voter_begins_at_once_if_all_addable_members_are_blank() -> None:
    driver = CoreDriver(joining=True, voter_count=1, addable_ids=("n7", "n8"), new_group=True)
    driver.tick()
    driver.receive(blank("n7"))
    assert driver.raft.joining
    driver.receive(blank("n8"))
    assert not driver.raft.joining


def test_the_only_first_voter_of_an_existing_group_leads_no_second_one() -> None:
    """It has lost its volume, and its settings still say that the group is new."""
    driver = CoreDriver(joining=True, voter_count=1, addable_ids=("n7", "n8"), new_group=True)
    driver.tick()
    driver.receive(blank("n7", end_index=3))

    driver.tick(10 * ELECTION_TICKS)

    assert "the group is not new, n7 has its log" in driver.raft.joining


def test_an_addable_member_does_not_start_a_group() -> None:
    driver = CoreDriver(joining=True, self_id="n7", addable_ids=("n7",))
    for peer_id in ("n0", "n1", "n2"):
        driver.receive(JoinResponse(
            sender=peer_id, receiver="n7", term=0, incarnation=INCARNATION, ledger_end_index=-1,
            leading=False, joining=True, alone=False,
        ))  # fmt: skip
    assert driver.raft.joining


def test_a_join_response_names_all_memberships_that_may_be_in_effect() -> None:
    driver = leader()
    question = JoinRequest(sender="n1", receiver="n0", term=0, incarnation=9)
    assert only(JoinResponse, driver.receive(question)).memberships == ()
    driver.change(Remove("n2"))
    driver.work()
    both = only(JoinResponse, driver.receive(question)).memberships
    assert both == (THREE, Membership(("n0", "n1")))
    confirm(driver, "n1")
    assert only(JoinResponse, driver.receive(question)).memberships == both[1:]
