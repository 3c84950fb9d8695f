"""Entries that the shell removes from the front of its log, by retention."""

import pytest

from dledger_node.raft.invariants import InvariantError
from dledger_node.raft.messages import CompareRequest, HeldByAllNotice
from dledger_sim.stage.driver import HEARTBEAT_TICKS, CoreDriver, of_type


def leader_with_ten_committed() -> CoreDriver:
    """n1 holds all of the log; n2 has answered nothing."""
    driver = CoreDriver(terms=[1] * 10)
    driver.become_leader()
    driver.agree("n1")
    driver.receive(driver.success_from("n1", 10))
    assert driver.raft.committed_index == 10
    return driver


def test_what_is_not_committed_cannot_be_removed() -> None:
    driver = leader_with_ten_committed()
    driver.propose(3)

    with pytest.raises(InvariantError, match="only those up to 10 are committed"):
        driver.raft.remove_before(11)

    driver.raft.remove_before(10)


def test_a_leader_goes_on_with_a_peer_that_has_all() -> None:
    driver = leader_with_ten_committed()
    driver.raft.remove_before(8)

    driver.propose(2)
    driver.flush()
    driver.receive(driver.success_from("n1", 12))

    assert (driver.raft.ledger_begin_index, driver.raft.committed_index) == (8, 12)


def test_a_peer_that_lacks_what_was_removed_is_asked_about_the_first_entry_now_and_then() -> None:
    """Before it has denied that one too, it must not keep the leader busy."""
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


def test_a_lost_link_to_such_a_peer_is_no_trouble() -> None:
    driver = leader_with_ten_committed()
    driver.receive(driver.success_from("n2", 3))
    driver.raft.remove_before(8)

    driver.raft.link_lost("n2")
    driver.raft.link_restored("n2")

    assert {one.index for one in of_type(CompareRequest, driver.work())} == {8}


def test_what_all_hold_is_no_matter_of_the_core() -> None:
    driver = leader_with_ten_committed()

    assert not driver.receive(HeldByAllNotice(sender="n1", receiver="n0", term=99, index=5))
    assert driver.raft.term < 99
