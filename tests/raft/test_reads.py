"""Linearizable reads, by ReadIndex and by lease. Rules: Raft dissertation, 6.4."""

import pytest

from dledger_node.raft.config import RaftConfig
from dledger_node.raft.messages import (
    HeartBeatRequest,
    PreVoteRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.proposals import Refusal, RefusalReason
from dledger_node.raft.ready import ReadState
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    CoreDriver,
    heartbeat,
    of_type,
    pre_vote_request,
    vote_request,
)

LEASE_TICKS = ELECTION_TICKS // 2


def master(**settings: object) -> CoreDriver:
    """Return a leader of three members whose no-op, entry 0, is committed."""
    driver = CoreDriver(**settings)  # type: ignore[arg-type]
    driver.become_leader()
    driver.agree("n1")
    driver.receive(driver.success_from("n1", 0))
    assert driver.raft.committed_index == 0
    return driver


def rounds(driver: CoreDriver) -> set[int]:
    return {request.round for request in of_type(HeartBeatRequest, driver.work())}


def test_a_read_is_released_by_a_round_that_starts_after_it() -> None:
    driver = master()
    driver.receive(driver.heard_from("n1", 1))
    driver.raft.read_index("read")
    assert rounds(driver) == {2}
    driver.receive(driver.heard_from("n2", 1))
    assert not driver.reads, "round 1 started before the read"
    driver.receive(driver.heard_from("n2", 2))

    assert driver.reads == [ReadState(handle="read", index=0)]


def test_a_read_includes_everything_committed_when_it_arrived() -> None:
    driver = master()
    driver.propose(3)
    driver.flush()
    driver.receive(driver.success_from("n1", 2))
    driver.raft.read_index("read")
    driver.work()
    driver.receive(driver.heard_from("n1", 2))

    assert driver.reads == [ReadState(handle="read", index=2)]


def test_reads_that_arrive_during_a_round_share_the_next_one() -> None:
    driver = master()
    driver.raft.read_index(1)
    assert rounds(driver) == {2}
    for handle in (2, 3):
        driver.raft.read_index(handle)
    assert rounds(driver) == set()
    messages = driver.receive(driver.heard_from("n1", 2))
    assert {request.round for request in of_type(HeartBeatRequest, messages)} == {3}
    driver.receive(driver.heard_from("n1", 3))

    assert [read.handle for read in driver.reads] == [1, 2, 3]


def test_a_read_at_a_new_leader_waits_for_its_first_entry() -> None:
    driver = CoreDriver(terms=[1, 1])
    driver.become_leader()
    driver.raft.read_index("read")
    driver.work()
    driver.receive(driver.heard_from("n1", 2))

    assert driver.reads == [ReadState(handle="read", index=2)]
    assert driver.raft.committed_index < 2, "the shell delays the read until then"


def test_a_deposed_leader_releases_its_reads_unconfirmed() -> None:
    driver = master()
    driver.raft.read_index("read")
    driver.receive(heartbeat(2))

    assert driver.reads == [ReadState(handle="read", index=None)]


def test_an_answer_to_a_round_of_an_earlier_term_confirms_no_read() -> None:
    """The heartbeat was held up until its receiver had voted in the term that its sender leads."""
    driver, follower = master(), CoreDriver(self_id="n1")
    driver.tick(2 * HEARTBEAT_TICKS)
    late = of_type(HeartBeatRequest, driver.tick(HEARTBEAT_TICKS))[0]
    driver.receive(heartbeat(2, sender="n2"))
    driver.become_leader()
    follower.receive(
        VoteRequest(sender="n2", receiver="n1", term=3, ledger_end_index=-1, ledger_end_term=-1)
    )
    assert (late.receiver, late.term, driver.raft.term) == ("n1", 1, 3)

    for answer in follower.receive(late):
        driver.receive(answer)
    driver.raft.read_index("read")
    driver.work()

    assert driver.raft.leads
    assert not driver.reads, "n1 has answered no round of term 3"


def test_a_partitioned_leader_confirms_no_read() -> None:
    driver = master()
    driver.raft.read_index("read")
    driver.tick(2 * ELECTION_TICKS)

    assert driver.reads == [ReadState(handle="read", index=None)]


def test_only_a_leader_takes_reads() -> None:
    driver = CoreDriver()
    refusal = driver.raft.read_index("read")

    assert isinstance(refusal, Refusal)
    assert refusal.reason is RefusalReason.NOT_LEADER


def test_a_group_of_one_releases_reads_at_once() -> None:
    driver = CoreDriver(voter_count=1)
    driver.become_leader()
    driver.raft.read_index("read")
    driver.work()

    assert driver.reads == [ReadState(handle="read", index=0)]


def test_a_lease_answers_reads_without_a_round() -> None:
    driver = master(lease_ticks=LEASE_TICKS)
    driver.receive(driver.heard_from("n1", 1))
    driver.tick(1)
    driver.raft.read_index("read")

    assert rounds(driver) == set()
    assert driver.reads == [ReadState(handle="read", index=0)]


def test_a_lease_starts_when_its_round_is_sent() -> None:
    driver = master(lease_ticks=LEASE_TICKS)
    driver.tick(LEASE_TICKS)
    driver.receive(driver.heard_from("n1", 1))
    driver.raft.read_index("read")
    driver.work()

    assert not driver.reads


def test_a_leadership_transfer_ends_the_lease() -> None:
    driver = master(lease_ticks=LEASE_TICKS)
    driver.receive(driver.heard_from("n1", 1))
    driver.raft.transfer_leadership("n1")
    driver.raft.read_index("read")
    driver.work()

    assert not driver.reads


def test_with_leases_a_broken_link_does_not_allow_an_early_vote() -> None:
    driver = CoreDriver(lease_ticks=LEASE_TICKS, randint=lambda low, high: high)
    driver.tick(ELECTION_TICKS)
    driver.receive(heartbeat(1, sender="n2"))
    driver.raft.link_lost("n2")
    driver.work()

    assert not driver.receive(vote_request(2, sender="n1"))
    (answer,) = driver.receive(pre_vote_request(1, sender="n1"))
    assert answer.result.name.startswith("REJECT")  # type: ignore[union-attr]


def test_with_leases_a_broken_link_does_not_allow_an_early_candidacy() -> None:
    driver = CoreDriver(lease_ticks=LEASE_TICKS)
    driver.receive(heartbeat(1, sender="n2"))
    driver.raft.link_lost("n2")
    assert not driver.tick(ELECTION_TICKS - 1)

    assert of_type(PreVoteRequest, driver.tick())


def test_with_leases_a_newer_term_does_not_allow_an_early_vote() -> None:
    """A late response to its own candidacy makes a member forget its leader, but not the lease."""
    driver = CoreDriver(lease_ticks=LEASE_TICKS)
    driver.tick(ELECTION_TICKS - 1)
    driver.receive(heartbeat(1, sender="n2"))
    driver.receive(driver.pre_vote_from("n1", VoteResult.REJECT_EXPIRED_VOTE_TERM, term=2))
    assert driver.raft.leader_id is None
    driver.tick(ELECTION_TICKS - 1)
    assert not driver.receive(vote_request(2, sender="n1"))
    driver.tick()

    assert of_type(VoteResponse, driver.receive(vote_request(2, sender="n1")))


def test_with_leases_a_restarted_member_votes_only_after_a_timeout() -> None:
    driver = CoreDriver(lease_ticks=LEASE_TICKS, term=1)
    assert not driver.receive(vote_request(2, sender="n1"))
    driver.tick(ELECTION_TICKS - 1)
    assert not driver.receive(vote_request(2, sender="n1"))
    driver.tick()

    assert of_type(VoteResponse, driver.receive(vote_request(2, sender="n1")))


def test_a_leader_does_not_accumulate_unanswered_rounds() -> None:
    driver = master()
    for round_ in range(2, 500):
        driver.tick(5)
        driver.receive(driver.heard_from("n1", round_))

    part = driver.raft._member.role_state
    assert len(part.rounds_sent) <= 2  # type: ignore[union-attr]
    assert not of_type(VoteRequest, driver.work())


def test_a_lease_as_long_as_the_election_timeout_raises_an_error() -> None:
    with pytest.raises(ValueError, match="lease_ticks"):
        RaftConfig(self_id="n0", voters=("n0",), heartbeat_ticks=1, election_ticks=4, lease_ticks=4)
