"""Elections. Rules: Raft paper, sections 5.2 and 5.4.1."""

import pytest

from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.ready import HardState, WriteNoop
from dledger_node.raft.refusals import RefusalCause
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    CoreDriver,
    append,
    heartbeat,
    of_type,
    only,
    vote_request,
)


def test_a_member_stands_after_a_random_time_of_one_to_two_timeouts() -> None:
    drawn: list[tuple[int, int]] = []

    def randint(low: int, high: int) -> int:
        drawn.append((low, high))
        return low + 3

    driver = CoreDriver(randint=randint)
    roles = []
    for _ in range(ELECTION_TICKS + 2):
        driver.tick()
        roles.append(driver.raft.role)
    assert set(drawn) == {(ELECTION_TICKS, 2 * ELECTION_TICKS)}
    driver.tick()
    roles.append(driver.raft.role)

    assert roles == [Role.FOLLOWER] * (ELECTION_TICKS + 2) + [Role.CANDIDATE]


def test_a_candidate_votes_for_itself_in_the_next_term_and_asks_all_other_voters() -> None:
    driver = CoreDriver(terms=[1, 1, 4], term=6)

    requests = of_type(VoteRequest, driver.stand())

    assert (driver.hard_state.term, driver.hard_state.vote_for) == (7, "n0")
    assert [request.receiver for request in requests] == ["n1", "n2"]
    assert {(one.ledger_end_index, one.ledger_end_term) for one in requests} == {(2, 4)}


def test_term_and_vote_are_saved_no_later_than_the_first_message_of_the_term() -> None:
    driver = CoreDriver()
    driver.tick(ELECTION_TICKS)
    driver.raft.step(driver.pre_vote_from("n1"))
    ready = driver.raft.ready()

    assert ready is not None
    assert ready.hard_state is not None
    assert ready.hard_state.term == ready.messages[0].term == 1


def test_a_candidate_without_a_majority_stands_again_in_a_new_term() -> None:
    driver = CoreDriver()
    driver.stand()
    driver.tick(HEARTBEAT_TICKS)
    assert driver.raft.term == 1
    driver.stand()

    assert (driver.raft.role, driver.raft.term) == (Role.CANDIDATE, 2)


def test_a_restarted_leader_does_not_stand_in_its_old_term_again() -> None:
    driver = CoreDriver(terms=[3], term=3, vote_for="n0")
    driver.stand()

    assert driver.raft.term == 4


def test_a_majority_of_votes_makes_a_leader() -> None:
    driver = CoreDriver(voter_count=5)
    driver.stand()
    driver.receive(driver.vote_from("n1"))
    assert driver.raft.role is Role.CANDIDATE
    driver.receive(driver.vote_from("n1"))
    assert driver.raft.role is Role.CANDIDATE, "one voter counts once"
    driver.receive(driver.vote_from("n4"))

    assert (driver.raft.role, driver.raft.leader_id) == (Role.LEADER, "n0")


def test_a_refused_vote_does_not_count() -> None:
    driver = CoreDriver()
    driver.stand()
    for peer_id in ("n1", "n2"):
        driver.receive(driver.vote_from(peer_id, VoteResult.REJECT_ALREADY_VOTED))

    assert driver.raft.role is Role.CANDIDATE


def test_a_vote_for_an_earlier_candidacy_does_not_count() -> None:
    driver = CoreDriver()
    driver.stand()
    late = driver.vote_from("n1")
    driver.tick(HEARTBEAT_TICKS)
    driver.stand()
    driver.receive(late)

    assert driver.raft.role is Role.CANDIDATE


def test_a_new_leader_writes_a_noop_and_sends_heartbeats_at_once() -> None:
    driver = CoreDriver(terms=[1, 1])
    messages = driver.become_leader(flushed=False)

    assert driver.writes == [WriteNoop(index=2, term=2)]
    assert [one.receiver for one in of_type(HeartBeatRequest, messages)] == ["n1", "n2"]


def test_a_group_of_one_elects_itself_and_commits_on_its_own_flush() -> None:
    driver = CoreDriver(voter_count=1)
    driver.tick(ELECTION_TICKS)
    assert (driver.raft.role, driver.raft.master) == (Role.LEADER, False)
    driver.flush()

    assert driver.raft.master
    assert driver.raft.committed_index == 0


@pytest.mark.parametrize(
    ("end", "result"),
    [
        pytest.param((4, 3), VoteResult.ACCEPT, id="the same log"),
        pytest.param((5, 3), VoteResult.ACCEPT, id="a longer log"),
        pytest.param((1, 4), VoteResult.ACCEPT, id="a shorter log of a later term"),
        pytest.param((3, 3), VoteResult.REJECT_SMALL_LEDGER_END_INDEX, id="a shorter log"),
        pytest.param((9, 2), VoteResult.REJECT_EXPIRED_LEDGER_TERM, id="an older last term"),
    ],
)
def test_a_member_votes_only_for_a_candidate_with_an_up_to_date_log(
    end: tuple[int, int], result: VoteResult
) -> None:
    driver = CoreDriver(terms=[1, 1, 3, 3, 3], term=5)

    response = only(VoteResponse, driver.receive(vote_request(6, end=end)))

    assert response.result is result
    assert driver.hard_state.term == 6
    assert driver.hard_state.vote_for == ("n1" if result is VoteResult.ACCEPT else None)


def test_a_member_votes_once_per_term_and_repeats_its_answer() -> None:
    driver = CoreDriver()
    first, again, other = (
        only(VoteResponse, driver.receive(vote_request(3, sender=sender))).result
        for sender in ("n1", "n1", "n2")
    )

    assert first is again is VoteResult.ACCEPT
    assert other is VoteResult.REJECT_ALREADY_VOTED


def test_a_vote_is_saved_even_if_its_term_is_already_saved() -> None:
    driver = CoreDriver(term=3)
    driver.raft.step(vote_request(3))
    ready = driver.raft.ready()

    assert ready is not None
    assert ready.hard_state == HardState(term=3, vote_for="n1")
    assert only(VoteResponse, ready.messages).result is VoteResult.ACCEPT


def test_a_member_remembers_its_vote_across_a_restart() -> None:
    driver = CoreDriver(term=3, vote_for="n1")

    response = only(VoteResponse, driver.receive(vote_request(3, sender="n2")))

    assert response.result is VoteResult.REJECT_ALREADY_VOTED


def test_a_follower_does_not_vote_for_a_candidate_of_its_leaders_term() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(3))

    response = only(VoteResponse, driver.receive(vote_request(3, sender="n2")))

    assert response.result is VoteResult.REJECT_ALREADY_HAS_LEADER


def test_a_candidate_of_an_older_term_learns_the_newer_one() -> None:
    driver = CoreDriver(term=5)

    response = only(VoteResponse, driver.receive(vote_request(4)))

    assert (response.term, response.requested_term) == (5, 4)
    assert response.result is VoteResult.REJECT_EXPIRED_VOTE_TERM


def test_granting_a_vote_restarts_the_timer_and_refusing_one_does_not() -> None:
    gave, refused = CoreDriver(terms=[1]), CoreDriver(terms=[1])
    for driver, end in ((gave, (0, 1)), (refused, (-1, -1))):
        driver.tick(ELECTION_TICKS - 1)
        driver.receive(vote_request(2, end=end))
        driver.tick()

    assert gave.raft.role is Role.FOLLOWER
    assert refused.raft.role is Role.CANDIDATE


def test_a_heartbeat_keeps_a_follower_from_standing() -> None:
    driver = CoreDriver()
    for _ in range(5):
        driver.tick(ELECTION_TICKS - 1)
        answer = only(HeartBeatResponse, driver.receive(heartbeat(1, round_=8)))

    assert answer.round == 8
    assert (driver.raft.role, driver.raft.leader_id) == (Role.FOLLOWER, "n1")


def test_a_deposed_leader_receives_the_newer_term_and_is_not_obeyed() -> None:
    driver = CoreDriver(term=5)

    answer = only(HeartBeatResponse, driver.receive(heartbeat(4)))

    assert answer.term == 5
    assert driver.raft.leader_id is None


def test_a_candidate_follows_the_leader_of_its_own_term() -> None:
    driver = CoreDriver()
    driver.stand()
    driver.receive(heartbeat(1))

    assert (driver.raft.role, driver.raft.leader_id) == (Role.FOLLOWER, "n1")


def test_a_leader_steps_down_for_a_newer_term() -> None:
    driver = CoreDriver()
    driver.become_leader()
    driver.receive(heartbeat(2))

    assert (driver.raft.role, driver.raft.leader_id, driver.raft.term) == (Role.FOLLOWER, "n1", 2)


def test_a_member_refuses_and_counts_a_second_leader_of_a_term() -> None:
    leader, follower = CoreDriver(), CoreDriver()
    leader.become_leader()
    follower.receive(heartbeat(1, sender="n1"))
    for driver in (leader, follower):
        driver.receive(append(1, (-1, -1), 5, sender="n2"))

    assert leader.raft.role is Role.LEADER
    assert follower.raft.leader_id == "n1"
    for driver in (leader, follower):
        assert driver.raft.refusals[RefusalCause.OTHER_LEADER] == 1
        assert "n2 claims to lead term 1" in driver.raft.contradiction


def test_a_leader_sends_a_numbered_round_every_heartbeat_interval() -> None:
    driver = CoreDriver()
    driver.become_leader()
    rounds = [
        (tick, request.receiver, request.round)
        for tick in range(1, 2 * HEARTBEAT_TICKS + 1)
        for request in of_type(HeartBeatRequest, driver.tick())
    ]

    assert rounds == [
        (HEARTBEAT_TICKS, "n1", 2),
        (HEARTBEAT_TICKS, "n2", 2),
        (2 * HEARTBEAT_TICKS, "n1", 3),
        (2 * HEARTBEAT_TICKS, "n2", 3),
    ]


def test_a_leader_without_a_quorum_steps_down_in_its_term() -> None:
    driver = CoreDriver(voter_count=5)
    driver.become_leader()
    for round_ in range(1, 2 * ELECTION_TICKS):
        driver.receive(driver.heard_from("n1", round_))
        driver.tick()
        if round_ == ELECTION_TICKS - 1:
            assert driver.raft.role is Role.LEADER

    assert (driver.raft.role, driver.raft.leader_id, driver.raft.term) == (Role.FOLLOWER, None, 1)


def test_a_leader_that_a_quorum_answers_keeps_leading() -> None:
    driver = CoreDriver(voter_count=5)
    driver.become_leader()
    for round_ in range(1, 5 * ELECTION_TICKS):
        driver.receive(driver.heard_from("n1", round_))
        driver.receive(driver.heard_from("n2", round_))
        driver.tick()

    assert driver.raft.role is Role.LEADER
    assert driver.raft.quorum_active


def test_a_late_heartbeat_answer_does_not_count_as_contact() -> None:
    driver = CoreDriver()
    driver.become_leader()
    driver.receive(driver.heard_from("n1", 2))
    for _ in range(ELECTION_TICKS):
        driver.receive(driver.heard_from("n1", 1))
        driver.tick()

    assert driver.raft.role is Role.FOLLOWER


def test_a_member_ignores_messages_for_others_and_from_strangers() -> None:
    driver = CoreDriver(voter_count=2)
    driver.raft.step(heartbeat(9, sender="n7"))
    driver.raft.step(
        HeartBeatRequest(sender="n0", receiver="n1", term=9, committed_index=-1, round=1)
    )

    assert driver.raft.ready() is None
    assert driver.raft.term == 0
