"""Time that pauses have lost, and the clock of a member without room for a leader's first entry."""

from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import (
    HeartBeatRequest,
    PreVoteRequest,
    PreVoteResponse,
    VoteRequest,
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
)


def follower() -> CoreDriver:
    """Return a member that follows n1 in term 1."""
    driver = CoreDriver()
    driver.receive(heartbeat(1))
    return driver


def tick_without_room(driver: CoreDriver, count: int) -> None:
    for _ in range(count):
        driver.raft.tick(has_room=False)


def test_a_leader_sends_a_heartbeat_at_the_first_tick_after_a_pause() -> None:
    driver = CoreDriver()
    driver.become_leader()

    driver.raft.tick(HEARTBEAT_TICKS)

    assert len(of_type(HeartBeatRequest, driver.work())) == 2


def test_a_pause_is_no_reason_for_a_leader_to_step_down() -> None:
    driver = CoreDriver()
    driver.become_leader()

    driver.raft.tick(10 * ELECTION_TICKS)

    assert driver.raft.role is Role.LEADER, "the answers of its followers are not read yet"


def test_a_pause_is_no_reason_for_a_follower_to_stand() -> None:
    driver = follower()

    driver.raft.tick(10 * ELECTION_TICKS)

    assert (driver.raft.role, driver.raft.leader_id) == (Role.FOLLOWER, "n1")


def test_ticks_that_are_caught_up_send_no_heartbeats_early() -> None:
    driver = CoreDriver()
    driver.become_leader()

    for _ in range(HEARTBEAT_TICKS):
        driver.raft.tick(0)

    assert not of_type(HeartBeatRequest, driver.work())


def test_a_member_without_room_notices_that_its_leader_is_gone_and_does_not_stand() -> None:
    driver = follower()

    tick_without_room(driver, 2 * ELECTION_TICKS)

    assert not of_type(PreVoteRequest, driver.work())
    assert (driver.raft.role, driver.raft.leader_id) == (Role.FOLLOWER, None)


def test_a_member_without_room_helps_to_replace_a_leader_that_is_gone() -> None:
    driver = follower()

    tick_without_room(driver, ELECTION_TICKS)
    answer = only(PreVoteResponse, driver.receive(pre_vote_request(1, sender="n2")))

    assert answer.result is VoteResult.ACCEPT


def test_a_member_that_loses_its_room_while_it_asks_for_pre_votes_gives_up() -> None:
    driver = follower()
    driver.tick(ELECTION_TICKS)
    assert driver.raft.role is Role.CANDIDATE

    tick_without_room(driver, 1)
    messages = driver.receive(driver.pre_vote_from("n1"))

    assert driver.raft.role is Role.FOLLOWER
    assert not of_type(VoteRequest, messages)
