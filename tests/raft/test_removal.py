"""Retention: the shell removes entries from the front of its log."""

import pytest

from dledger_node.raft.invariants import InvariantError
from dledger_node.raft.messages import CompareRequest, HeldByAllNotice
from dledger_sim.stage.driver import HEARTBEAT_TICKS, CoreDriver, of_type


def leader_with_ten_committed() -> CoreDriver:
    """Return a leader whose log n1 holds completely; n2 has not answered."""
    driver = CoreDriver(terms=[1] * 10)
    driver.become_leader()
    driver.agree("n1")
    driver.receive(driver.success_from("n1", 10))
    assert driver.raft.committed_index == 10
    return driver


def test_removing_uncommitted_entries_raises_an_error() -> None:
    driver = leader_with_ten_committed()
    driver.propose(3)

    with pytest.raises(InvariantError, match="only those up to 10 are committed"):
        driver.raft.remove_before(11)

    driver.raft.remove_before(10)


def test_a_leader_keeps_pushing_to_a_caught_up_peer_after_a_removal() -> None:
    driver = leader_with_ten_committed()
    driver.raft.remove_before(8)

    driver.propose(2)
    driver.flush()
    driver.receive(driver.success_from("n1", 12))

    assert (driver.raft.ledger_begin_index, driver.raft.committed_index) == (8, 12)


def test_a_leader_probes_a_peer_that_lacks_removed_entries_at_heartbeats_only() -> None:
    """Until the peer denies that entry too, probing it must not keep the leader busy."""
    driver = leader_with_ten_committed()
    for index in (10, 5):
        question = next(
            one
            for one in of_type(CompareRequest, driver.questions_to("n2"))
            if one.receiver == "n2"
        )
        assert question.index <= 10
        driver.receive(driver.denial_from("n2", index - 5, probe=question.probe))
    driver.raft.remove_before(8)

    asked = [
        one.index
        for _ in range(3 * HEARTBEAT_TICKS)
        for one in of_type(CompareRequest, driver.tick())
        if one.receiver == "n2"
    ]

    assert set(asked) == {8}
    assert len(asked) <= 4


def test_after_a_lost_link_a_leader_probes_a_lagging_peer_at_its_first_entry() -> None:
    driver = leader_with_ten_committed()
    driver.receive(driver.success_from("n2", 3))
    driver.raft.remove_before(8)

    driver.raft.link_lost("n2")
    driver.raft.link_restored("n2")

    assert {one.index for one in of_type(CompareRequest, driver.work())} == {8}


def test_the_core_ignores_a_held_by_all_notice() -> None:
    driver = leader_with_ten_committed()

    assert not driver.receive(HeldByAllNotice(sender="n1", receiver="n0", term=99, index=5))
    assert driver.raft.term < 99
