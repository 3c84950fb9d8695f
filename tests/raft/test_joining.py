"""A member that comes up without a memory: when it may vote, and what it does until then. The
argument why is in `dledger_node.raft.joining`.
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


def test_it_asks_all_others_again_and_again() -> None:
    driver = joining_core()

    for _ in range(3):
        asked = of_type(JoinRequest, driver.tick(HEARTBEAT_TICKS))
        assert [(one.receiver, one.incarnation) for one in asked] == [
            ("n1", INCARNATION),
            ("n2", INCARNATION),
        ]


def test_it_asks_a_peer_at_once_whose_link_is_back() -> None:
    driver = joining_core()
    driver.raft.link_restored("n2")

    assert only(JoinRequest, driver.work()).receiver == "n2"


def test_whoever_is_asked_answers_in_any_term_and_changes_nothing() -> None:
    driver = CoreDriver(terms=[1, 2], term=3)
    told = only(JoinResponse, driver.receive(question("n1", term=9)))

    assert (told.term, told.incarnation, told.ledger_end_index) == (3, 9, 1)
    assert (told.leading, told.joining, told.alone) == (False, False, False)
    assert driver.raft.term == 3


def test_a_leader_says_that_it_leads_and_where_its_log_ends_durable_or_not() -> None:
    driver = CoreDriver(terms=[1])
    driver.become_leader(flushed=False)
    told = only(JoinResponse, driver.receive(question("n1")))

    assert (told.leading, told.term, told.ledger_end_index) == (True, 2, 1)


def test_a_joining_member_says_so() -> None:
    assert only(JoinResponse, joining_core().receive(question("n1"))).joining


# -- until then ------------------------------------------------------------------------------------


def test_it_neither_votes_nor_promises_a_vote_nor_stands() -> None:
    driver = joining_core(answer("n1", 3), answer("n2", 3))

    assert not driver.receive(pre_vote_request(7, end=(9, 7)))
    assert not driver.receive(vote_request(8, end=(9, 7)))
    driver.receive(TakeLeadershipRequest(sender="n1", receiver="n0", term=3))
    driver.tick(10 * ELECTION_TICKS)
    assert (driver.raft.role, driver.raft.term) == (Role.FOLLOWER, 3)
    assert driver.hard_state == HardState(term=3, vote_for=None, joining=True)


@pytest.mark.parametrize("voter_count", [3, 5])
def test_before_all_have_answered_it_heeds_no_leader(voter_count: int) -> None:
    """A majority is not enough: the one that is missing may have the vote that was forgotten."""
    others = [answer(f"n{number}", 3) for number in range(2, voter_count - 1)]
    driver = joining_core(answer("n1", 3, 5, leading=True), *others, voter_count=voter_count)
    said: list[Message] = []
    for message in (heartbeat(3), compare(3, -1, -1), append(3, (-1, -1), 2)):
        said += driver.receive(message)
    said += driver.flush()

    assert not of_type(HeartBeatResponse, said)
    assert not of_type(PushResponse, said)
    assert driver.raft.ledger_end_index == -1


def test_leaders_below_the_floor_are_told_that_they_are_deposed() -> None:
    driver = joining_core(answer("n1", 3, 5, leading=True), answer("n2", 4))

    assert only(HeartBeatResponse, driver.receive(heartbeat(3))).term == 4
    assert driver.raft.leader_id is None


def test_once_all_have_answered_it_takes_entries_and_confirms_them() -> None:
    driver = joining_core(answer("n1", 3, 9, leading=True), answer("n2", 3))
    driver.receive(append(3, (-1, -1), 4))

    assert only(PushResponse, driver.flush()).match_index == 4
    assert driver.raft.joining == "waits for the entries of n1 up to 9"


def test_it_says_whom_it_waits_for() -> None:
    driver = joining_core()
    assert driver.raft.joining.startswith("waits for n1, n2")
    driver.receive(answer("n1", 3))
    assert driver.raft.joining.startswith("waits for n2")
    driver.receive(answer("n2", 3))
    assert driver.raft.joining == "waits for a leader"


def test_a_leader_that_falls_silent_is_forgotten() -> None:
    driver = joining_core(answer("n1", 3, 9, leading=True), answer("n2", 3))
    driver.receive(heartbeat(3))
    assert driver.raft.leader_id == "n1"
    driver.tick(ELECTION_TICKS)

    assert driver.raft.leader_id is None
    assert driver.raft.role is Role.FOLLOWER


# -- becoming a voter ------------------------------------------------------------------------------


def test_a_new_group_begins_when_all_are_blank() -> None:
    driver = joining_core(answer("n1", 0, joining=True))
    assert driver.raft.joining
    driver.receive(answer("n2", 0, joining=True))

    assert not driver.raft.joining
    assert driver.hard_state == HardState(term=0, vote_for=None)


def test_a_member_that_is_a_voter_already_and_blank_is_of_the_new_group() -> None:
    assert not joining_core(answer("n1", 0), answer("n2", 0, joining=True)).raft.joining


@pytest.mark.parametrize("other", [answer("n2", 1), answer("n2", 0, 0)], ids=["a term", "an entry"])
def test_one_that_has_had_anything_makes_the_group_an_old_one(other: JoinResponse) -> None:
    assert joining_core(answer("n1", 0, joining=True), other).raft.joining


def test_it_votes_once_it_has_durably_what_the_leader_had_when_it_answered() -> None:
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


def test_that_it_votes_is_saved_before_its_vote_leaves() -> None:
    driver = joining_core(answer("n1", 3, 0, leading=True), answer("n2", 2))
    driver.receive(append(3, (-1, -1), 0))
    driver.raft.persisted(0, 3)
    driver.raft.step(vote_request(4, sender="n2", end=(4, 3), take_leadership=True))
    ready = driver.raft.ready()

    assert ready is not None
    assert ready.hard_state == HardState(term=3, vote_for=None)
    assert not of_type(VoteResponse, ready.messages)


def test_an_answer_to_an_earlier_start_says_nothing() -> None:
    old = INCARNATION - 1
    driver = joining_core(answer("n1", 0, incarnation=old), answer("n2", 0, incarnation=old))

    assert driver.raft.joining.startswith("waits for n1, n2")


def test_the_end_that_counts_is_told_by_the_leader_of_this_term() -> None:
    driver = joining_core(answer("n1", 3, 0, leading=True), answer("n2", 4))
    driver.receive(append(5, (-1, -1), 0, 3))
    driver.flush()
    assert driver.raft.joining == "waits for a leader", "n1 has not said that it leads this term"
    driver.receive(answer("n1", 5, 0, leading=True))
    driver.receive(append(5, (-1, -1), 0, 3))
    driver.flush()

    assert not driver.raft.joining


def test_one_that_does_not_lead_does_not_know_the_end() -> None:
    driver = joining_core(answer("n1", 3, 0), answer("n2", 3))
    driver.receive(append(3, (-1, -1), 5))
    driver.flush()

    assert driver.raft.joining


def test_the_end_does_not_run_away_while_the_leader_takes_appends() -> None:
    driver = joining_core(answer("n1", 3, 2, leading=True), answer("n2", 3))
    driver.receive(answer("n1", 3, 900, leading=True))
    driver.receive(append(3, (-1, -1), 2))
    driver.flush()

    assert not driver.raft.joining


def test_what_was_there_before_counts_only_as_far_as_the_leader_vouches_for_it() -> None:
    """A member that is started again while it joins has a log, perhaps another leader's."""
    driver = CoreDriver(joining=True, terms=[1, 1, 2, 2])
    driver.receive(answer("n1", 3, 3, leading=True))
    driver.receive(answer("n2", 3))
    driver.receive(compare(3, 1, 1))
    assert driver.raft.joining
    driver.receive(compare(3, 3, 2))

    assert not driver.raft.joining


# -- many volumes at once --------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(6))
def test_who_is_in_every_majority(count: int) -> None:
    """Five voters: a majority that has none of them needs three others."""
    assert quorum.meets_every_majority(count, 5) == (5 - count < 3)


def test_with_too_few_who_know_their_promises_it_refuses() -> None:
    driver = joining_core(answer("n1", 3, 5, leading=True), answer("n2", 0, joining=True))

    assert not driver.receive(heartbeat(3))
    assert driver.raft.joining.startswith("waits for members that kept their logs; n2")


def test_two_of_five_that_lost_theirs_come_back() -> None:
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


def test_a_group_of_one_has_nobody_to_ask_and_notes_that_it_is_alone() -> None:
    driver = group_of_one()
    assert driver.hard_state == HardState(term=0, vote_for=None, alone=True)
    driver.tick(2 * ELECTION_TICKS)

    assert driver.raft.role is Role.LEADER
    assert driver.hard_state.alone


def test_blank_members_vote_for_the_one_that_was_alone() -> None:
    driver = joining_core(answer("n1", 3, 9, alone=True), answer("n2", 0, joining=True))
    promise = only(PreVoteResponse, driver.receive(pre_vote_request(3, end=(9, 3))))

    assert promise.result is VoteResult.ACCEPT
    assert votes(driver, vote_request(4, end=(9, 3)))
    assert driver.hard_state == HardState(term=4, vote_for="n1", joining=True)


def test_they_vote_for_it_above_the_floor_alone() -> None:
    driver = joining_core(answer("n1", 3, 9, alone=True), answer("n2", 4, joining=True))

    assert not driver.receive(vote_request(4, end=(9, 3)))


def test_they_vote_for_nobody_else() -> None:
    driver = joining_core(answer("n1", 3, 9, alone=True), answer("n2", 0, joining=True))

    assert not driver.receive(vote_request(4, sender="n2"))


def test_once_others_vote_too_they_wait_for_a_leader() -> None:
    """n2 and the earlier self could have elected one that n1 does not know of."""
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


def test_it_was_not_alone_any_more_once_it_votes_for_another_or_follows() -> None:
    driver = alone_among_three()
    assert votes(driver, vote_request(2, end=(0, 1)))
    assert not driver.hard_state.alone

    driver = alone_among_three()
    driver.receive(heartbeat(2))
    assert not driver.hard_state.alone


def test_it_stays_the_one_that_was_alone_while_it_leads_itself() -> None:
    driver = alone_among_three()
    driver.become_leader()

    assert driver.hard_state.alone
    assert only(JoinResponse, driver.receive(question("n1"))).alone


# -- what a leader does meanwhile ------------------------------------------------------------------


def test_a_leader_hands_over_to_no_member_that_joins() -> None:
    driver = CoreDriver(terms=[1])
    driver.become_leader()
    driver.agree("n1")
    driver.agree("n2")
    driver.receive(question("n1"))

    assert driver.raft.transfer_leadership("n1") == Refusal(
        reason=RefusalReason.FALL_BEHIND_TOO_MUCH, leader_id="n0"
    )
    assert driver.raft.fittest_peer_id == "n2"
