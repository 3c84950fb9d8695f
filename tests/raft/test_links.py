"""Broken connections: a dead leader is replaced early, and a reconnect deposes no leader."""

from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import AppendRequest, CompareRequest, HeartBeatRequest, VoteRequest
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    CoreDriver,
    heartbeat,
    of_type,
    only,
)


def ticks_until_candidate(driver: CoreDriver) -> int:
    for count in range(1, 3 * ELECTION_TICKS):
        driver.tick()
        if driver.raft.role is Role.CANDIDATE:
            return count
    raise AssertionError("it never stood for election")


def test_a_follower_of_a_dead_leader_stands_within_two_heartbeats() -> None:
    latest = CoreDriver(randint=lambda low, high: high)
    latest.receive(heartbeat(1))
    latest.raft.link_lost("n1")

    assert ticks_until_candidate(latest) == 2 * HEARTBEAT_TICKS


def test_a_live_leader_has_a_whole_heartbeat_interval_after_a_broken_link() -> None:
    earliest = CoreDriver(randint=lambda low, high: low)
    earliest.receive(heartbeat(1))
    earliest.raft.link_lost("n1")

    assert ticks_until_candidate(earliest) == HEARTBEAT_TICKS + 1


def test_a_heartbeat_after_a_reconnect_restores_the_full_timeout() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))
    driver.raft.link_lost("n1")
    driver.tick(HEARTBEAT_TICKS)
    driver.receive(heartbeat(1, round_=2))

    assert ticks_until_candidate(driver) == ELECTION_TICKS


def test_repeated_refused_connections_do_not_draw_a_new_timeout() -> None:
    draws: list[tuple[int, int]] = []

    def randint(low: int, high: int) -> int:
        draws.append((low, high))
        return high

    driver = CoreDriver(randint=randint)
    driver.receive(heartbeat(1))
    draws.clear()
    for _ in range(5):
        driver.raft.link_lost("n1")
        driver.tick()

    assert draws == [(1, HEARTBEAT_TICKS)]


def test_a_broken_link_between_followers_has_no_effect() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))
    driver.raft.link_lost("n2")

    assert ticks_until_candidate(driver) == ELECTION_TICKS


def test_a_leader_sends_a_heartbeat_and_a_probe_to_a_reconnected_peer_at_once() -> None:
    driver = CoreDriver(terms=[1, 1])
    driver.become_leader()
    driver.agree("n1")
    driver.receive(driver.success_from("n1", 2))
    driver.raft.link_lost("n1")
    assert not driver.work()
    driver.raft.link_restored("n1")
    messages = driver.work()

    assert only(HeartBeatRequest, messages).receiver == "n1"
    assert only(CompareRequest, messages).index == 2


def test_a_leader_pushes_again_what_was_in_flight_on_a_broken_link() -> None:
    driver = CoreDriver(terms=[1, 1])
    driver.become_leader()
    driver.agree("n1")
    driver.receive(driver.success_from("n1", 2))
    before = only(AppendRequest, driver.propose(5))
    driver.raft.link_lost("n1")
    again = only(AppendRequest, driver.agree("n1"))

    assert again == before


def test_a_candidate_asks_a_reconnected_peer_again() -> None:
    driver = CoreDriver()
    driver.stand()
    driver.raft.link_restored("n2")

    assert [one.receiver for one in of_type(VoteRequest, driver.work())] == ["n2"]


def test_a_link_to_an_unknown_peer_is_ignored() -> None:
    driver = CoreDriver()
    driver.become_leader()
    driver.raft.link_lost("n9")
    driver.raft.link_restored("n9")

    assert driver.raft.ready() is None
