"""The contract between core and shell: Ready, advance, persisted, and the checks at a start."""

import pytest

from dledger_node.raft.core import Raft
from dledger_node.raft.invariants import InvariantError
from dledger_node.raft.messages import JoinResponse, PushResponse
from dledger_node.raft.proposals import Proposal, Refusal, RefusalReason
from dledger_node.raft.ready import HardState, Ready, WriteProposal
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    INCARNATION,
    CoreDriver,
    append,
    heartbeat,
    of_type,
    vote_request,
)


def next_ready(raft: Raft) -> Ready:
    ready = raft.ready()
    assert ready is not None
    return ready


def test_the_core_returns_no_ready_without_work() -> None:
    driver = CoreDriver()
    assert driver.raft.ready() is None
    driver.become_leader()

    assert driver.raft.ready() is None


def test_the_core_returns_one_ready_at_a_time_and_inputs_go_to_the_next() -> None:
    driver = CoreDriver()
    driver.raft.step(vote_request(1))
    first = next_ready(driver.raft)
    driver.raft.step(vote_request(2, sender="n2"))
    assert driver.raft.ready() is None
    driver.raft.advance(first)
    second = next_ready(driver.raft)

    assert first.hard_state is not None
    assert second.hard_state is not None
    assert (first.hard_state.vote_for, second.hard_state.vote_for) == ("n1", "n2")


def test_a_ready_contains_the_hard_state_until_it_is_saved() -> None:
    driver = CoreDriver()
    driver.raft.step(vote_request(1))
    driver.work()
    driver.raft.step(vote_request(1))

    assert next_ready(driver.raft).hard_state is None


def test_joining_stays_saved_while_the_term_rises() -> None:
    driver = CoreDriver(joining=True)
    for sender in ("n1", "n2"):
        driver.raft.step(
            JoinResponse(
                sender=sender, receiver="n0", term=3, incarnation=INCARNATION,
                ledger_end_index=5, leading=sender == "n1", joining=False, alone=False,
            )
        )  # fmt: skip

    assert next_ready(driver.raft).hard_state == HardState(term=3, vote_for=None, joining=True)


def test_advance_accepts_only_the_current_ready() -> None:
    driver = CoreDriver()
    driver.raft.step(heartbeat(1))
    ready = next_ready(driver.raft)
    driver.raft.advance(ready)

    with pytest.raises(InvariantError):
        driver.raft.advance(ready)


def test_a_proposal_names_its_entries_and_passes_its_bodies_on() -> None:
    driver = CoreDriver(terms=[1, 1])
    driver.become_leader()
    bodies = object()
    proposal = driver.raft.propose(3, bodies)
    driver.work()

    assert proposal == Proposal(first_index=3, last_index=5, term=2)
    assert driver.writes[-1] == WriteProposal(first_index=3, last_index=5, term=2, entries=bodies)


def test_a_member_that_does_not_lead_refuses_and_names_the_leader() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))
    refusal = driver.raft.propose(1, "bodies")

    assert refusal == Refusal(reason=RefusalReason.NOT_LEADER, leader_id="n1")
    assert driver.raft.ready() is None


def test_a_flush_report_of_truncated_entries_is_ignored() -> None:
    driver = CoreDriver()
    driver.receive(append(1, (-1, -1), 9))
    driver.receive(append(2, (4, 1), 7, sender="n2"))
    driver.raft.persisted(9, 1)
    assert driver.raft.durable_index == -1
    driver.raft.persisted(7, 1)
    assert driver.raft.durable_index == -1
    driver.raft.persisted(7, 2)

    assert driver.raft.durable_index == 7


def test_an_older_flush_report_does_not_lower_the_durable_index() -> None:
    driver = CoreDriver()
    driver.receive(append(1, (-1, -1), 9))
    driver.flush()
    driver.raft.persisted(4, 1)

    assert driver.raft.durable_index == 9
    assert not of_type(PushResponse, driver.work())


def test_a_ready_reports_the_committed_index_once_it_rises() -> None:
    driver = CoreDriver(voter_count=1)
    driver.become_leader(flushed=False)
    driver.raft.persisted(0, 1)
    ready = next_ready(driver.raft)

    assert (ready.committed_index, ready.messages, ready.writes) == (0, (), ())


def test_a_log_newer_than_the_saved_term_raises_an_error() -> None:
    with pytest.raises(InvariantError, match="term and vote were lost"):
        CoreDriver(terms=[1, 4], term=3)


def test_a_log_that_ends_before_the_committed_index_raises_an_error() -> None:
    with pytest.raises(InvariantError, match="committed entries were lost"):
        CoreDriver(terms=[1, 1], committed_index=5)


def test_a_follower_is_quorum_active_while_its_leader_is_alive() -> None:
    driver = CoreDriver(randint=lambda low, high: high)
    assert not driver.raft.quorum_active
    driver.receive(heartbeat(1))
    assert driver.raft.quorum_active
    driver.tick(ELECTION_TICKS)

    assert not driver.raft.quorum_active


def test_only_a_leader_reports_match_indexes() -> None:
    driver = CoreDriver()
    assert driver.raft.match_indexes() == {}
    driver.become_leader()

    assert driver.raft.match_indexes() == {"n1": -1, "n2": -1}


def test_an_idle_tick_produces_no_ready() -> None:
    driver = CoreDriver()
    driver.become_leader()
    driver.tick(HEARTBEAT_TICKS)
    driver.raft.tick()

    assert driver.raft.ready() is None
