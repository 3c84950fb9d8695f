"""What the core and its shell owe each other: Ready, advance, persisted, and what a start needs."""

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


def test_without_work_there_is_no_ready() -> None:
    driver = CoreDriver()
    assert driver.raft.ready() is None
    driver.become_leader()

    assert driver.raft.ready() is None


def test_one_ready_is_out_at_a_time_and_inputs_wait_for_the_next() -> None:
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


def test_the_hard_state_comes_until_it_is_saved_and_then_no_more() -> None:
    driver = CoreDriver()
    driver.raft.step(vote_request(1))
    driver.work()
    driver.raft.step(vote_request(1))

    assert next_ready(driver.raft).hard_state is None


def test_that_a_member_joins_stays_saved_while_its_term_rises() -> None:
    driver = CoreDriver(joining=True)
    for sender in ("n1", "n2"):
        driver.raft.step(
            JoinResponse(
                sender=sender, receiver="n0", term=3, incarnation=INCARNATION,
                ledger_end_index=5, leading=sender == "n1", joining=False, alone=False,
            )
        )  # fmt: skip

    assert next_ready(driver.raft).hard_state == HardState(term=3, vote_for=None, joining=True)


def test_advance_belongs_to_the_ready_that_is_out() -> None:
    driver = CoreDriver()
    driver.raft.step(heartbeat(1))
    ready = next_ready(driver.raft)
    driver.raft.advance(ready)

    with pytest.raises(InvariantError):
        driver.raft.advance(ready)


def test_a_proposal_says_which_entries_it_became_and_hands_its_bodies_on() -> None:
    driver = CoreDriver(terms=[1, 1])
    driver.become_leader()
    bodies = object()
    proposal = driver.raft.propose(3, bodies)
    driver.work()

    assert proposal == Proposal(first_index=3, last_index=5, term=2)
    assert driver.writes[-1] == WriteProposal(first_index=3, last_index=5, term=2, entries=bodies)


def test_whoever_does_not_lead_refuses_and_names_the_leader() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))
    refusal = driver.raft.propose(1, "bodies")

    assert refusal == Refusal(reason=RefusalReason.NOT_LEADER, leader_id="n1")
    assert driver.raft.ready() is None


def test_a_flush_that_a_truncation_overtook_counts_for_nothing() -> None:
    driver = CoreDriver()
    driver.receive(append(1, (-1, -1), 9))
    driver.receive(append(2, (4, 1), 7, sender="n2"))
    driver.raft.persisted(9, 1)
    assert driver.raft.durable_index == -1
    driver.raft.persisted(7, 1)
    assert driver.raft.durable_index == -1
    driver.raft.persisted(7, 2)

    assert driver.raft.durable_index == 7


def test_an_older_flush_does_not_move_the_durable_index_back() -> None:
    driver = CoreDriver()
    driver.receive(append(1, (-1, -1), 9))
    driver.flush()
    driver.raft.persisted(4, 1)

    assert driver.raft.durable_index == 9
    assert not of_type(PushResponse, driver.work())


def test_a_ready_tells_the_committed_index_once_it_moves() -> None:
    driver = CoreDriver(voter_count=1)
    driver.become_leader(flushed=False)
    driver.raft.persisted(0, 1)
    ready = next_ready(driver.raft)

    assert (ready.committed_index, ready.messages, ready.writes) == (0, (), ())


def test_a_log_newer_than_the_stored_term_is_refused() -> None:
    with pytest.raises(InvariantError, match="term and vote were lost"):
        CoreDriver(terms=[1, 4], term=3)


def test_a_log_that_ends_before_the_committed_index_is_refused() -> None:
    with pytest.raises(InvariantError, match="committed entries were lost"):
        CoreDriver(terms=[1, 1], committed_index=5)


def test_a_follower_is_in_touch_while_it_hears_its_leader() -> None:
    driver = CoreDriver(randint=lambda low, high: high)
    assert not driver.raft.quorum_active
    driver.receive(heartbeat(1))
    assert driver.raft.quorum_active
    driver.tick(ELECTION_TICKS)

    assert not driver.raft.quorum_active


def test_only_a_leader_knows_its_peers_logs() -> None:
    driver = CoreDriver()
    assert driver.raft.match_indexes() == {}
    driver.become_leader()

    assert driver.raft.match_indexes() == {"n1": -1, "n2": -1}


def test_an_idle_tick_asks_for_nothing() -> None:
    driver = CoreDriver()
    driver.become_leader()
    driver.tick(HEARTBEAT_TICKS)
    driver.raft.tick()

    assert driver.raft.ready() is None
