"""Every election has a cause, which the member logs and counts."""

import logging
from typing import cast

import pytest

from dledger_node.raft.core import Raft
from dledger_node.raft.election_causes import Election, ElectionCause
from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import TakeLeadershipRequest
from dledger_node.shell.leader_watch import LeaderWatch, describe
from dledger_sim.stage.driver import ELECTION_TICKS, HEARTBEAT_TICKS, CoreDriver, heartbeat


def election_of(driver: CoreDriver) -> Election:
    """Tick until the member stands for election, and return why it does."""
    for _ in range(3 * ELECTION_TICKS):
        driver.tick()
        if driver.raft.role is Role.CANDIDATE:
            break
    election = driver.raft.last_election
    assert election is not None
    return election


def test_a_silent_leader_is_the_cause() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))

    election = election_of(driver)

    assert (election.cause, election.leader_id) == (ElectionCause.NO_HEARTBEAT, "n1")
    assert election.silent_ticks == ELECTION_TICKS
    assert "n1, the leader of term 1, sent nothing for" in describe(election)


def test_a_broken_link_to_the_leader_is_the_cause() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))
    driver.raft.link_lost("n1")

    election = election_of(driver)

    assert election.cause is ElectionCause.LEADER_LINK_LOST
    assert election.silent_ticks <= 2 * HEARTBEAT_TICKS


def test_a_term_without_a_known_leader_is_the_cause() -> None:
    election = election_of(CoreDriver(term=4))

    assert (election.cause, election.leader_id) == (ElectionCause.NO_LEADER, None)
    assert "no leader of term 4" in describe(election)


def test_a_transfer_is_the_cause() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))

    driver.receive(TakeLeadershipRequest(sender="n1", receiver="n0", term=1))

    assert dict(driver.raft.elections) == {ElectionCause.TRANSFER: 1}


def test_rounds_without_a_winner_are_counted_but_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = CoreDriver(term=4)
    watch = LeaderWatch(cast("Raft", driver.raft))

    with caplog.at_level(logging.INFO):
        for _ in range(20 * ELECTION_TICKS):
            driver.tick()
            watch.on_turn(-1)

    lines = [record.message for record in caplog.records if "election" in record.message]
    assert len(lines) == 2
    assert "no leader of term 4" in lines[0]
    assert "had no winner" in lines[1]
    assert driver.raft.elections[ElectionCause.NO_WINNER] > 10
