"""What a broken connection tells: a dead leader is replaced early, a reconnect deposes nobody."""

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


def test_a_living_leader_has_a_whole_interval_to_be_heard_again() -> None:
    earliest = CoreDriver(randint=lambda low, high: low)
    earliest.receive(heartbeat(1))
    earliest.raft.link_lost("n1")

    assert ticks_until_candidate(earliest) == HEARTBEAT_TICKS + 1


def test_a_heartbeat_after_the_reconnect_restores_the_whole_timeout() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))
    driver.raft.link_lost("n1")
    driver.tick(HEARTBEAT_TICKS)
    driver.receive(heartbeat(1, round_=2))

    assert ticks_until_candidate(driver) == ELECTION_TICKS


def test_refused_connections_do_not_draw_again() -> None:
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


def test_the_loss_of_another_follower_changes_nothing() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))
    driver.raft.link_lost("n2")

    assert ticks_until_candidate(driver) == ELECTION_TICKS


def test_a_leader_speaks_at_once_to_a_peer_that_is_back() -> None:
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


def test_what_was_on_its_way_over_a_broken_link_is_pushed_again() -> None:
    driver = CoreDriver(terms=[1, 1])
    driver.become_leader()
    driver.agree("n1")
    driver.receive(driver.success_from("n1", 2))
    before = only(AppendRequest, driver.propose(5))
    driver.raft.link_lost("n1")
    again = only(AppendRequest, driver.agree("n1"))

    assert again == before


def test_a_candidate_asks_again_a_peer_that_is_back() -> None:
    driver = CoreDriver()
    driver.stand()
    driver.raft.link_restored("n2")

    assert [one.receiver for one in of_type(VoteRequest, driver.work())] == ["n2"]


def test_a_link_to_nobody_is_ignored() -> None:
    driver = CoreDriver()
    driver.become_leader()
    driver.raft.link_lost("n9")
    driver.raft.link_restored("n9")

    assert driver.raft.ready() is None
