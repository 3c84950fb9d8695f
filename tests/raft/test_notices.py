"""A leader tells its peers by a heartbeat what is committed, if no push soon does."""

import pytest

from dledger_node.raft.messages import HeartBeatRequest, Message
from dledger_sim.stage.driver import HEARTBEAT_TICKS, CoreDriver, of_type

NOTICES_MAX = 2


def leader_of_three(notices_max: int = NOTICES_MAX) -> CoreDriver:
    """Return a leader whose peers hold its first entry, entry 0, and know that it is committed."""
    driver = CoreDriver(notices_per_tick_max=notices_max)
    driver.become_leader()
    for peer_id in ("n1", "n2"):
        driver.agree(peer_id)
        driver.receive(driver.success_from(peer_id, 0))
    driver.tick(HEARTBEAT_TICKS)
    return driver


def commit(driver: CoreDriver, index: int) -> list[Message]:
    """Append an entry and let n1 confirm it; return what is sent once it is committed."""
    driver.propose()
    driver.flush()
    return driver.receive(driver.success_from("n1", index))


def told(messages: list[Message]) -> list[tuple[str, int]]:
    return [(one.receiver, one.committed_index) for one in of_type(HeartBeatRequest, messages)]


def test_a_peer_is_told_at_once_what_it_holds_and_is_committed() -> None:
    driver = leader_of_three()

    assert told(commit(driver, 1)) == [("n1", 1)]


def test_a_peer_that_is_later_is_told_when_it_holds_the_entry() -> None:
    driver = leader_of_three()
    commit(driver, 1)

    assert told(driver.receive(driver.success_from("n2", 1))) == [("n2", 1)]


def test_a_peer_is_told_once() -> None:
    driver = leader_of_three()
    commit(driver, 1)

    assert told(driver.receive(driver.success_from("n1", 1))) == []
    assert told(driver.tick()) == []


def test_a_push_tells_it_too() -> None:
    driver = leader_of_three()
    driver.propose()
    driver.flush()
    driver.propose()
    driver.flush()
    driver.receive(driver.success_from("n1", 1))
    driver.propose()  # its push says that entry 1 is committed

    assert told(driver.receive(driver.success_from("n2", 1))) == []


def test_what_moves_often_is_told_by_the_pushes_and_in_the_end_by_a_heartbeat() -> None:
    driver = leader_of_three()
    sent = [told(commit(driver, index)) for index in range(1, 8)]

    assert sent == [[("n1", 1)], [("n1", 2)], [], [], [], [], []]
    assert told(driver.tick()) == [], "the tick before was a busy one"
    assert told(driver.tick()) == [("n1", 7)]


def test_a_leader_whose_peers_are_to_be_told_has_no_idle_ticks() -> None:
    driver = leader_of_three()
    for index in range(1, 8):
        commit(driver, index)

    assert driver.raft.idle_ticks() == 0
    driver.tick(2)
    assert driver.raft.idle_ticks() > 0


@pytest.mark.parametrize("committed", [1, 5])
def test_without_notices_the_next_heartbeat_round_tells_it(committed: int) -> None:
    driver = leader_of_three(notices_max=0)

    assert all(told(commit(driver, index)) == [] for index in range(1, committed + 1))
    assert driver.raft.idle_ticks() > 0
    assert ("n1", committed) in told(driver.tick(HEARTBEAT_TICKS))
