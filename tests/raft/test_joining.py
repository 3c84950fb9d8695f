"""Joining members: when they may vote, and how they behave until then.

`dledger_node.raft.joining` gives the reasons.
"""

import pytest

from dledger_node.raft import quorum
from dledger_node.raft.config import RaftConfig
from dledger_node.raft.core import Raft
from dledger_node.raft.log_terms import LogTerms
from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import (
    HeartBeatResponse,
    JoinRequest,
    JoinResponse,
    Message,
    PreVoteResponse,
    PushResponse,
    TakeLeadershipRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.proposals import Refusal, RefusalReason
from dledger_node.raft.ready import HardState
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    INCARNATION,
    CoreDriver,
    append,
    compare,
    heartbeat,
    of_type,
    only,
    pre_vote_request,
    vote_request,
)


def answer(
    sender: str,
    term: int,
    end_index: int = -1,
    *,
    leading: bool = False,
    joining: bool = False,
    alone: bool = False,
    incarnation: int = INCARNATION,
) -> JoinResponse:
    return JoinResponse(
        sender=sender, receiver="n0", term=term, incarnation=incarnation,
        ledger_end_index=end_index, leading=leading, joining=joining, alone=alone,
    )  # fmt: skip


def question(sender: str, term: int = 0) -> JoinRequest:
    return JoinRequest(sender=sender, receiver="n0", term=term, incarnation=9)


def joining_core(*answers: JoinResponse, voter_count: int = 3) -> CoreDriver:
    driver = CoreDriver(joining=True, voter_count=voter_count)
    for one in answers:
        driver.receive(one)
    return driver


def votes(driver: CoreDriver, request: VoteRequest) -> bool:
    results = [one.result for one in of_type(VoteResponse, driver.receive(request))]
    return results == [VoteResult.ACCEPT]


# -- asking ----------------------------------------------------------------------------------------


def test_a_joining_member_asks_all_others_repeatedly() -> None:
    driver = joining_core()

    for _ in range(3):
        asked = of_type(JoinRequest, driver.tick(HEARTBEAT_TICKS))
        assert [(one.receiver, one.incarnation) for one in asked] == [
            ("n1", INCARNATION),
            ("n2", INCARNATION),
        ]


def test_a_joining_member_asks_a_reconnected_peer_at_once() -> None:
    driver = joining_core()
    driver.raft.link_restored("n2")

    assert only(JoinRequest, driver.work()).receiver == "n2"


def test_a_member_answers_a_join_request_of_any_term_without_changing() -> None:
    driver = CoreDriver(terms=[1, 2], term=3)
    response = only(JoinResponse, driver.receive(question("n1", term=9)))

    assert (response.term, response.incarnation, response.ledger_end_index) == (3, 9, 1)
    assert (response.leading, response.joining, response.alone) == (False, False, False)
    assert driver.raft.term == 3


def test_a_leader_answers_with_the_end_of_its_log_even_if_not_durable() -> None:
    driver = CoreDriver(terms=[1])
    driver.become_leader(flushed=False)
    response = only(JoinResponse, driver.receive(question("n1")))

    assert (response.leading, response.term, response.ledger_end_index) == (True, 2, 1)


def test_a_joining_member_reports_that_it_is_joining() -> None:
    assert only(JoinResponse, joining_core().receive(question("n1"))).joining


# -- before it may vote ----------------------------------------------------------------------------


def test_a_joining_member_neither_votes_nor_pre_votes_nor_stands() -> None:
    driver = joining_core(answer("n1", 3), answer("n2", 3))

    assert not driver.receive(pre_vote_request(7, end=(9, 7)))
    assert not driver.receive(vote_request(8, end=(9, 7)))
    driver.receive(TakeLeadershipRequest(sender="n1", receiver="n0", term=3))
    driver.tick(10 * ELECTION_TICKS)
    assert (driver.raft.role, driver.raft.term) == (Role.FOLLOWER, 3)
    assert driver.hard_state == HardState(term=3, vote_for=None, joining=True)


@pytest.mark.parametrize("voter_count", [3, 5])
def test_a_joining_member_takes_no_entries_before_all_have_answered(voter_count: int) -> None:
    """A majority is not enough: the silent member may be the one that got the forgotten vote."""
    others = [answer(f"n{number}", 3) for number in range(2, voter_count - 1)]
    driver = joining_core(answer("n1", 3, 5, leading=True), *others, voter_count=voter_count)
    said: list[Message] = []
    for message in (heartbeat(3), compare(3, -1, -1), append(3, (-1, -1), 2)):
        said += driver.receive(message)
    said += driver.flush()

    assert not of_type(HeartBeatResponse, said)
    assert not of_type(PushResponse, said)
    assert driver.raft.ledger_end_index == -1


def test_a_joining_member_refuses_leaders_of_older_terms() -> None:
    driver = joining_core(answer("n1", 3, 5, leading=True), answer("n2", 4))

    assert only(HeartBeatResponse, driver.receive(heartbeat(3))).term == 4
    assert driver.raft.leader_id is None


def test_a_joining_member_takes_and_confirms_entries_once_all_have_answered() -> None:
    driver = joining_core(answer("n1", 3, 9, leading=True), answer("n2", 3))
    driver.receive(append(3, (-1, -1), 4))

    assert only(PushResponse, driver.flush()).match_index == 4
    assert driver.raft.joining == "waits for the entries of n1 up to 9"


def test_a_joining_member_reports_which_members_it_waits_for() -> None:
    driver = joining_core()
    assert driver.raft.joining.startswith("waits for n1, n2")
    driver.receive(answer("n1", 3))
    assert driver.raft.joining.startswith("waits for n2")
    driver.receive(answer("n2", 3))
    assert driver.raft.joining == "waits for a leader"


def test_a_joining_member_forgets_a_silent_leader() -> None:
    driver = joining_core(answer("n1", 3, 9, leading=True), answer("n2", 3))
    driver.receive(heartbeat(3))
    assert driver.raft.leader_id == "n1"
    driver.tick(ELECTION_TICKS)

    assert driver.raft.leader_id is None
    assert driver.raft.role is Role.FOLLOWER


# -- becoming a voter ------------------------------------------------------------------------------


def test_a_new_group_starts_when_all_members_are_blank() -> None:
    driver = joining_core(answer("n1", 0, joining=True))
    assert driver.raft.joining
    driver.receive(answer("n2", 0, joining=True))

    assert not driver.raft.joining
    assert driver.hard_state == HardState(term=0, vote_for=None)


def test_a_blank_voter_counts_as_a_member_of_the_new_group() -> None:
    assert not joining_core(answer("n1", 0), answer("n2", 0, joining=True)).raft.joining


@pytest.mark.parametrize("other", [answer("n2", 1), answer("n2", 0, 0)], ids=["a term", "an entry"])
def test_a_group_is_not_new_if_any_member_has_a_term_or_an_entry(other: JoinResponse) -> None:
    assert joining_core(answer("n1", 0, joining=True), other).raft.joining


def test_a_joining_member_votes_once_it_durably_holds_what_the_leader_held_when_asked() -> None:
    driver = joining_core(answer("n1", 3, 4, leading=True), answer("n2", 2))
    driver.receive(append(3, (-1, -1), 3))
    driver.flush()
    assert driver.raft.joining
    driver.receive(append(3, (3, 3), 4))
    assert driver.raft.joining, "it is not durable yet"
    driver.flush()

    assert not driver.raft.joining
    assert driver.hard_state == HardState(term=3, vote_for=None)
    assert votes(driver, vote_request(4, sender="n2", end=(4, 3), take_leadership=True))


def test_the_end_of_joining_is_saved_before_the_first_vote_is_sent() -> None:
    driver = joining_core(answer("n1", 3, 0, leading=True), answer("n2", 2))
    driver.receive(append(3, (-1, -1), 0))
    driver.raft.persisted(0, 3)
    driver.raft.step(vote_request(4, sender="n2", end=(4, 3), take_leadership=True))
    ready = driver.raft.ready()

    assert ready is not None
    assert ready.hard_state == HardState(term=3, vote_for=None)
    assert not of_type(VoteResponse, ready.messages)


def test_a_joining_member_ignores_answers_to_an_earlier_incarnation() -> None:
    old = INCARNATION - 1
    driver = joining_core(answer("n1", 0, incarnation=old), answer("n2", 0, incarnation=old))

    assert driver.raft.joining.startswith("waits for n1, n2")


def test_a_joining_member_needs_the_log_end_of_the_current_terms_leader() -> None:
    driver = joining_core(answer("n1", 3, 0, leading=True), answer("n2", 4))
    driver.receive(append(5, (-1, -1), 0, 3))
    driver.flush()
    assert driver.raft.joining == "waits for a leader", (
        "n1 has not reported that it leads this term"
    )
    driver.receive(answer("n1", 5, 0, leading=True))
    driver.receive(append(5, (-1, -1), 0, 3))
    driver.flush()

    assert not driver.raft.joining


def test_a_joining_member_does_not_use_the_log_end_of_a_follower() -> None:
    driver = joining_core(answer("n1", 3, 0), answer("n2", 3))
    driver.receive(append(3, (-1, -1), 5))
    driver.flush()

    assert driver.raft.joining


def test_a_later_answer_of_the_leader_does_not_move_the_awaited_end() -> None:
    driver = joining_core(answer("n1", 3, 2, leading=True), answer("n2", 3))
    driver.receive(answer("n1", 3, 900, leading=True))
    driver.receive(append(3, (-1, -1), 2))
    driver.flush()

    assert not driver.raft.joining


def test_a_joining_member_counts_its_own_entries_only_once_verified() -> None:
    """A member that restarts while it joins has a log, perhaps from another leader."""
    driver = CoreDriver(joining=True, terms=[1, 1, 2, 2])
    driver.receive(answer("n1", 3, 3, leading=True))
    driver.receive(answer("n2", 3))
    driver.receive(compare(3, 1, 1))
    assert driver.raft.joining
    driver.receive(compare(3, 3, 2))

    assert not driver.raft.joining


# -- several lost volumes --------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(6))
def test_meets_every_majority_agrees_with_its_definition(count: int) -> None:
    """Of five voters, a majority without any of the given ones needs three others."""
    assert quorum.meets_every_majority(count, 5) == (5 - count < 3)


def test_a_joining_member_waits_while_too_few_members_know_their_promises() -> None:
    driver = joining_core(answer("n1", 3, 5, leading=True), answer("n2", 0, joining=True))

    assert not driver.receive(heartbeat(3))
    assert driver.raft.joining.startswith("waits for members that kept their logs; n2")


def test_two_of_five_members_can_join_at_once() -> None:
    driver = joining_core(
        answer("n1", 3, 0, leading=True), answer("n2", 3), answer("n3", 2),
        answer("n4", 0, joining=True), voter_count=5,
    )  # fmt: skip
    driver.receive(append(3, (-1, -1), 0))
    driver.flush()

    assert not driver.raft.joining


# -- a group that grows from one member ------------------------------------------------------------


def group_of_one() -> CoreDriver:
    driver = CoreDriver(joining=True, voter_count=1)
    driver.work()
    return driver


def test_a_group_of_one_does_not_join_and_records_that_it_is_alone() -> None:
    driver = group_of_one()
    assert driver.hard_state == HardState(term=0, vote_for=None, alone=True)
    driver.tick(2 * ELECTION_TICKS)

    assert driver.raft.role is Role.LEADER
    assert driver.hard_state.alone


def test_a_blank_member_votes_for_the_member_that_was_alone() -> None:
    driver = joining_core(answer("n1", 3, 9, alone=True), answer("n2", 0, joining=True))
    promise = only(PreVoteResponse, driver.receive(pre_vote_request(3, end=(9, 3))))

    assert promise.result is VoteResult.ACCEPT
    assert votes(driver, vote_request(4, end=(9, 3)))
    assert driver.hard_state == HardState(term=4, vote_for="n1", joining=True)


def test_a_blank_member_votes_for_it_only_above_the_highest_known_term() -> None:
    driver = joining_core(answer("n1", 3, 9, alone=True), answer("n2", 4, joining=True))

    assert not driver.receive(vote_request(4, end=(9, 3)))


def test_a_blank_member_votes_for_no_other_candidate() -> None:
    driver = joining_core(answer("n1", 3, 9, alone=True), answer("n2", 0, joining=True))

    assert not driver.receive(vote_request(4, sender="n2"))


def test_a_blank_member_waits_for_a_leader_once_others_can_vote() -> None:
    """n2 and this member's earlier incarnation may have elected a leader unknown to n1."""
    driver = joining_core(answer("n1", 3, 9, alone=True), answer("n2", 4))

    assert not driver.receive(vote_request(5, end=(9, 3)))


def alone_among_three() -> CoreDriver:
    driver = CoreDriver(terms=[1])
    driver.hard_state = HardState(term=1, vote_for=None, alone=True)
    driver.raft = Raft(
        RaftConfig(
            self_id="n0", voters=("n0", "n1", "n2"), heartbeat_ticks=HEARTBEAT_TICKS,
            election_ticks=ELECTION_TICKS,
        ),
        driver.hard_state,
        LogTerms(0, [(0, 1)], 0),
        committed_index=-1,
        incarnation=INCARNATION,
        randint=lambda low, _: low,
    )  # fmt: skip
    return driver


def test_a_member_is_no_longer_alone_once_it_votes_for_another_or_follows() -> None:
    driver = alone_among_three()
    assert votes(driver, vote_request(2, end=(0, 1)))
    assert not driver.hard_state.alone

    driver = alone_among_three()
    driver.receive(heartbeat(2))
    assert not driver.hard_state.alone


def test_a_member_stays_alone_while_it_leads_itself() -> None:
    driver = alone_among_three()
    driver.become_leader()

    assert driver.hard_state.alone
    assert only(JoinResponse, driver.receive(question("n1"))).alone


# -- the leader's side -----------------------------------------------------------------------------


def test_a_leader_does_not_hand_over_to_a_joining_member() -> None:
    driver = CoreDriver(terms=[1])
    driver.become_leader()
    driver.agree("n1")
    driver.agree("n2")
    driver.receive(question("n1"))

    assert driver.raft.transfer_leadership("n1") == Refusal(
        reason=RefusalReason.FALL_BEHIND_TOO_MUCH, leader_id="n0"
    )
    assert driver.raft.fit_peer_ids[:1] == ("n2",)
