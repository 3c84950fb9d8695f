"""Ticks that change nothing but the clock, and that a shell may sleep through."""

import pytest

from dledger_node.raft.invariants import InvariantError
from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import HeartBeatRequest, JoinRequest, PreVoteRequest
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    CoreDriver,
    heartbeat,
    of_type,
)


def test_a_follower_stands_at_the_tick_after_its_idle_ticks() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))

    driver.raft.pass_idle_ticks(driver.raft.idle_ticks(), 0)
    assert driver.work() == []
    driver.tick()

    assert driver.raft.role is not Role.FOLLOWER


def test_a_leader_sends_its_heartbeats_at_the_tick_after_its_idle_ticks() -> None:
    driver = CoreDriver()
    driver.become_leader()

    idle_ticks = driver.raft.idle_ticks()
    driver.raft.pass_idle_ticks(idle_ticks, idle_ticks)
    assert driver.work() == []

    assert idle_ticks == HEARTBEAT_TICKS - 1
    assert len(of_type(HeartBeatRequest, driver.tick())) == 2


def test_a_leader_that_nobody_answers_steps_down_in_time() -> None:
    driver = CoreDriver()
    driver.become_leader()
    ticks = 0

    while driver.raft.role is Role.LEADER:
        idle_ticks = driver.raft.idle_ticks()
        driver.raft.pass_idle_ticks(idle_ticks, idle_ticks)
        driver.tick()
        ticks += idle_ticks + 1

    assert ticks == ELECTION_TICKS


def test_a_margin_is_kept_before_a_timeout_and_not_before_a_heartbeat() -> None:
    follower, leader = CoreDriver(), CoreDriver()
    follower.receive(heartbeat(1))
    leader.become_leader()

    assert follower.raft.idle_ticks(before_timeout=3) == follower.raft.idle_ticks() - 3
    assert leader.raft.idle_ticks(before_timeout=3) == HEARTBEAT_TICKS - 1


def test_a_candidate_that_nobody_answers_stands_again_at_the_tick_after_its_idle_ticks() -> None:
    driver = CoreDriver()
    driver.stand()
    driver.work()

    for _ in range(3):
        idle_ticks = driver.raft.idle_ticks()
        driver.raft.pass_idle_ticks(idle_ticks, idle_ticks)
        assert driver.work() == []
        assert idle_ticks > 0
        assert len(of_type(PreVoteRequest, driver.tick())) == 2


def test_a_joining_member_is_idle_between_two_rounds_of_its_questions() -> None:
    driver = CoreDriver(joining=True)
    assert len(of_type(JoinRequest, driver.tick())) == 2
    passed_ticks = 1

    while passed_ticks < 3 * ELECTION_TICKS:
        idle_ticks = driver.raft.idle_ticks()
        driver.raft.pass_idle_ticks(idle_ticks, idle_ticks)
        assert driver.work() == []
        asked = of_type(JoinRequest, driver.tick())
        passed_ticks += idle_ticks + 1
        assert len(asked) == (2 if passed_ticks % HEARTBEAT_TICKS == 1 else 0)


def test_a_leader_that_hands_over_has_no_idle_ticks() -> None:
    driver = CoreDriver()
    driver.become_leader()
    driver.agree("n1")
    assert driver.raft.transfer_leadership("n1") is None

    assert driver.raft.idle_ticks() == 0


def test_ticks_that_are_not_idle_are_refused() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))

    with pytest.raises(InvariantError, match="not idle"):
        driver.raft.pass_idle_ticks(driver.raft.idle_ticks() + 1, 0)
