"""Pre-votes: only a member that a majority would elect may raise the term.

Rules: Raft dissertation, 9.6 and 4.2.3.
"""

import pytest

from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import (
    HeartBeatResponse,
    PreVoteRequest,
    PreVoteResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    CoreDriver,
    heartbeat,
    of_type,
    only,
    pre_vote_request,
    vote_request,
)


def answer_to(driver: CoreDriver, request: PreVoteRequest) -> VoteResult:
    return only(PreVoteResponse, driver.receive(request)).result


def test_a_member_without_answers_never_raises_its_term() -> None:
    driver = CoreDriver(term=4)
    messages = driver.tick(20 * ELECTION_TICKS)

    assert (driver.raft.role, driver.raft.term) == (Role.CANDIDATE, 4)
    assert driver.hard_state.vote_for is None
    assert not of_type(VoteRequest, messages)


def test_a_member_raises_its_term_only_after_a_majority_of_pre_votes() -> None:
    driver = CoreDriver(voter_count=5, term=4)
    driver.tick(ELECTION_TICKS)
    driver.receive(driver.pre_vote_from("n1"))
    driver.receive(driver.pre_vote_from("n1"))
    driver.receive(driver.pre_vote_from("n2", VoteResult.REJECT_ALREADY_HAS_LEADER))
    assert driver.raft.term == 4
    requests = of_type(VoteRequest, driver.receive(driver.pre_vote_from("n3")))

    assert driver.raft.term == 5
    assert [request.receiver for request in requests] == ["n1", "n2", "n3", "n4"]


def test_a_pre_vote_for_an_earlier_term_does_not_count() -> None:
    driver = CoreDriver(term=4)
    driver.tick(ELECTION_TICKS)
    late = driver.pre_vote_from("n1")
    driver.receive(heartbeat(5))
    driver.tick(ELECTION_TICKS)
    driver.receive(late)

    assert driver.raft.term == 5


def test_a_pre_vote_does_not_bind_its_sender_or_change_its_term() -> None:
    driver = CoreDriver(terms=[1], term=4)
    for sender in ("n1", "n2"):
        assert answer_to(driver, pre_vote_request(9, sender=sender, end=(0, 1))) is (
            VoteResult.ACCEPT
        )

    assert (driver.hard_state.term, driver.hard_state.vote_for) == (4, None)


@pytest.mark.parametrize(
    ("end", "result"),
    [
        pytest.param((2, 3), VoteResult.ACCEPT, id="the same log"),
        pytest.param((1, 3), VoteResult.REJECT_SMALL_LEDGER_END_INDEX, id="a shorter log"),
        pytest.param((9, 2), VoteResult.REJECT_EXPIRED_LEDGER_TERM, id="an older last term"),
    ],
)
def test_a_pre_vote_needs_an_up_to_date_log(end: tuple[int, int], result: VoteResult) -> None:
    driver = CoreDriver(terms=[1, 3, 3], term=5)

    assert answer_to(driver, pre_vote_request(5, end=end)) is result


def test_a_follower_with_a_live_leader_grants_no_pre_vote() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1, sender="n2"))
    driver.tick(ELECTION_TICKS - 1)

    assert answer_to(driver, pre_vote_request(7)) is VoteResult.REJECT_ALREADY_HAS_LEADER


def test_a_follower_with_a_silent_leader_grants_a_pre_vote() -> None:
    driver = CoreDriver(randint=lambda low, high: high)
    driver.receive(heartbeat(1, sender="n2"))
    driver.tick(ELECTION_TICKS)

    assert answer_to(driver, pre_vote_request(1)) is VoteResult.ACCEPT


def test_a_follower_that_lost_its_link_to_the_leader_grants_a_pre_vote() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1, sender="n2"))
    driver.raft.link_lost("n2")

    assert answer_to(driver, pre_vote_request(1)) is VoteResult.ACCEPT


def test_a_member_that_lost_only_its_own_link_does_not_depose_the_leader() -> None:
    leader, other = CoreDriver(), CoreDriver()
    leader.become_leader()
    other.receive(heartbeat(1, sender="n2"))

    for driver in (leader, other):
        assert answer_to(driver, pre_vote_request(1)) is VoteResult.REJECT_ALREADY_HAS_LEADER
    assert leader.raft.role is Role.LEADER


def test_a_leader_without_a_quorum_grants_a_pre_vote() -> None:
    driver = CoreDriver(voter_count=5)
    driver.become_leader()
    driver.tick(ELECTION_TICKS)

    assert answer_to(driver, pre_vote_request(1, end=(0, 1))) is VoteResult.ACCEPT


def test_a_candidate_of_a_later_term_cannot_depose_a_live_leader() -> None:
    leader, follower = CoreDriver(), CoreDriver()
    leader.become_leader()
    follower.receive(heartbeat(1, sender="n2"))

    for driver in (leader, follower):
        assert not driver.receive(vote_request(8, end=(5, 7)))
        assert driver.raft.term == 1


def test_a_group_moves_to_the_later_term_of_a_stuck_member() -> None:
    driver = CoreDriver()
    driver.become_leader()
    driver.receive(HeartBeatResponse(sender="n1", receiver="n0", term=8, round=1))

    assert (driver.raft.role, driver.raft.term) == (Role.FOLLOWER, 8)


def test_a_pre_candidate_learns_a_newer_term_from_a_refusal() -> None:
    ahead, behind = CoreDriver(term=9), CoreDriver(term=4)
    assert answer_to(ahead, pre_vote_request(4)) is VoteResult.REJECT_EXPIRED_VOTE_TERM
    behind.tick(ELECTION_TICKS)
    behind.receive(behind.pre_vote_from("n1", VoteResult.REJECT_EXPIRED_VOTE_TERM, term=9))

    assert (behind.raft.role, behind.raft.term) == (Role.FOLLOWER, 9)


def test_one_of_two_pre_candidates_with_equal_logs_gives_way() -> None:
    driver = CoreDriver(terms=[2])
    driver.tick(ELECTION_TICKS)
    wanted = CoreDriver(terms=[2], preferred_leader_ids=("n1",))
    wanted.tick(ELECTION_TICKS)

    assert answer_to(driver, pre_vote_request(2, end=(0, 2))) is VoteResult.REJECT_ALREADY_VOTED
    assert answer_to(wanted, pre_vote_request(2, end=(0, 2))) is VoteResult.ACCEPT


def test_of_two_pre_candidates_the_one_with_the_longer_log_wins() -> None:
    driver = CoreDriver(terms=[2])
    driver.tick(ELECTION_TICKS)

    assert answer_to(driver, pre_vote_request(2, end=(1, 2))) is VoteResult.ACCEPT


def test_a_candidate_grants_no_pre_vote_during_its_election() -> None:
    driver = CoreDriver()
    driver.stand()

    assert answer_to(driver, pre_vote_request(1, end=(5, 1))) is VoteResult.REJECT_ALREADY_VOTED


def test_a_member_repeats_an_undecided_election_within_three_heartbeats() -> None:
    driver = CoreDriver(randint=lambda low, high: high)
    driver.stand()
    again = [
        only(PreVoteRequest, asked[:1])
        for _ in range(3 * HEARTBEAT_TICKS)
        if (asked := driver.tick())
    ]

    assert [request.term for request in again] == [1]


def test_a_vote_still_binds_after_a_pre_vote() -> None:
    driver = CoreDriver()
    first = only(VoteResponse, driver.receive(vote_request(3, sender="n1")))
    driver.receive(pre_vote_request(3, sender="n2"))
    second = only(VoteResponse, driver.receive(vote_request(3, sender="n2")))

    assert (first.result, second.result) == (VoteResult.ACCEPT, VoteResult.REJECT_ALREADY_VOTED)
