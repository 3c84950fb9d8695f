"""Who stands, who votes and who joins, where members know different memberships."""

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


def test_who_knows_that_it_was_removed_does_not_stand() -> None:
    driver = removed_n0(committed_index=1)
    said = driver.tick(10 * ELECTION_TICKS)
    assert not of_type(PreVoteRequest, said)
    assert driver.raft.role is Role.FOLLOWER


def test_who_is_being_removed_stands_and_does_not_count_itself() -> None:
    driver = removed_n0(committed_index=0)
    asked = of_type(PreVoteRequest, driver.tick(ELECTION_TICKS))
    assert [request.receiver for request in asked] == ["n1", "n2"]
    driver.receive(driver.pre_vote_from("n1"))
    assert driver.raft.term == 1, "one of two voters promises nothing"
    driver.receive(driver.pre_vote_from("n2"))
    assert driver.raft.term == 2


def test_a_vote_of_who_is_no_voter_elects_nobody() -> None:
    driver = CoreDriver(addable_ids=("n7",))
    driver.tick(ELECTION_TICKS)
    driver.receive(driver.pre_vote_from("n7"))
    assert driver.raft.term == 0
    driver.receive(driver.pre_vote_from("n1"))
    driver.receive(driver.vote_from("n7"))
    assert driver.raft.role is Role.CANDIDATE
    driver.receive(driver.vote_from("n1"))
    assert driver.raft.role is Role.LEADER


def test_a_candidate_that_this_member_does_not_count_gets_its_vote() -> None:
    """The candidate may have become a voter by an entry that is missing here."""
    driver = CoreDriver(terms=[1], addable_ids=("n7",))
    said = driver.receive(vote_request(2, sender="n7", end=(1, 1)))
    assert only(VoteResponse, said).result is VoteResult.ACCEPT


def test_a_candidate_that_this_member_does_not_count_deposes_no_leader() -> None:
    driver = CoreDriver(terms=[1], addable_ids=("n7",))
    driver.receive(heartbeat(1))
    assert not driver.receive(vote_request(9, sender="n7", end=(1, 1)))
    asked = PreVoteRequest(
        sender="n7", receiver="n0", term=8, ledger_end_index=1, ledger_end_term=1
    )
    promise = only(PreVoteResponse, driver.receive(asked))
    assert promise.result is VoteResult.REJECT_ALREADY_HAS_LEADER
    assert driver.raft.term == 1


def test_a_leader_that_this_member_does_not_count_is_followed() -> None:
    driver = CoreDriver(terms=[1], addable_ids=("n7",))
    driver.receive(heartbeat(2, sender="n7"))
    assert driver.raft.leader_id == "n7"


def test_the_answer_of_who_does_not_belong_deposes_nobody() -> None:
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
    """Whether it joins still, after it was offered the entry up to which its leader has said."""
    driver.receive(append(3, (-1, -1), 0, sender="n1"))
    driver.flush()
    return bool(driver.raft.joining)


def test_a_member_that_joins_asks_those_whom_its_leader_counts() -> None:
    """n2, with whom the group began, is gone for good; n8 is what replaced it."""
    driver = CoreDriver(joining=True, addable_ids=("n8",))
    asked = [request.receiver for request in of_type(JoinRequest, driver.tick())]
    assert asked == ["n1", "n2", "n8"]
    driver.receive(told("n1", 3, Membership(("n1", "n8"), ("n0",)), leading=True))
    assert joins(driver)
    driver.receive(told("n8", 3))
    assert not joins(driver)


def test_while_a_change_is_not_committed_those_before_it_must_answer_too() -> None:
    driver = CoreDriver(joining=True)
    driver.receive(
        told("n1", 3, Membership(("n0", "n1", "n2")), Membership(("n0", "n1")), leading=True)
    )
    assert joins(driver)
    driver.receive(told("n2", 4))
    assert joins(driver), "n2 stood in term 4, perhaps with the earlier self's vote"


def test_learners_must_answer_as_another_leader_may_have_promoted_one() -> None:
    driver = CoreDriver(joining=True, addable_ids=("n7",))
    driver.receive(told("n1", 3, Membership(("n0", "n1"), ("n7",)), leading=True))
    assert joins(driver)
    driver.receive(told("n7", 3))
    assert not joins(driver)


def test_a_group_that_has_changed_is_not_new_whoever_is_blank() -> None:
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
    assert driver.raft.joining, "n7 may have all"
    driver.receive(blank[2])
    assert not driver.raft.joining


def blank(peer_id: str, *, end_index: int = -1) -> JoinResponse:
    return JoinResponse(
        sender=peer_id, receiver="n0", term=0, incarnation=INCARNATION,
        ledger_end_index=end_index, leading=False, joining=True, alone=False,
    )  # fmt: skip


def test_a_group_that_is_new_by_its_settings_waits_for_its_first_voters_alone() -> None:
    driver = CoreDriver(joining=True, addable_ids=("n7",), new_group=True)
    driver.receive(blank("n1"))
    assert driver.raft.joining
    driver.receive(blank("n2"))
    assert not driver.raft.joining


def test_whoever_answers_that_it_has_a_log_makes_it_an_old_one() -> None:
    driver = CoreDriver(joining=True, addable_ids=("n7",), new_group=True)
    for said in (blank("n7", end_index=3), blank("n1"), blank("n2")):
        driver.receive(said)
    assert driver.raft.joining


def test_who_may_be_added_does_not_begin_a_group() -> None:
    driver = CoreDriver(joining=True, self_id="n7", addable_ids=("n7",))
    for peer_id in ("n0", "n1", "n2"):
        driver.receive(JoinResponse(
            sender=peer_id, receiver="n7", term=0, incarnation=INCARNATION, ledger_end_index=-1,
            leading=False, joining=True, alone=False,
        ))  # fmt: skip
    assert driver.raft.joining


def test_a_member_says_by_which_memberships_it_may_have_to_count() -> None:
    driver = leader()
    question = JoinRequest(sender="n1", receiver="n0", term=0, incarnation=9)
    assert only(JoinResponse, driver.receive(question)).memberships == ()
    driver.change(Remove("n2"))
    driver.work()
    both = only(JoinResponse, driver.receive(question)).memberships
    assert both == (THREE, Membership(("n0", "n1")))
    confirm(driver, "n1")
    assert only(JoinResponse, driver.receive(question)).memberships == both[1:]
