"""A member whose state is behind its log lets others be elected first, but not for ever."""

from dledger_node.raft.election_causes import ElectionCause
from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import (
    HeartBeatRequest,
    PreVoteRequest,
    PreVoteResponse,
    TakeLeadershipRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.proposals import Refusal, RefusalReason
from dledger_node.raft.refusals import RefusalCause
from dledger_node.raft.yielding import YIELD_TIMEOUTS, ReportedCommit
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    CoreDriver,
    compare,
    heartbeat,
    of_type,
    only,
    pre_vote_request,
    vote_request,
)

YIELD_TICKS = YIELD_TIMEOUTS * ELECTION_TICKS


def behind(**settings: object) -> CoreDriver:
    """Return a follower whose state is behind, and which has just heard its leader."""
    driver = CoreDriver(term=1, **settings)  # type: ignore[arg-type]
    driver.receive(heartbeat(1))
    driver.raft.note_state(is_behind=True)
    return driver


def leader_of_three(**settings: object) -> CoreDriver:
    """Return a master whose followers hold its log."""
    driver = CoreDriver(**settings)  # type: ignore[arg-type]
    driver.become_leader()
    for peer_id in ("n1", "n2"):
        driver.agree(peer_id)
        driver.receive(driver.success_from(peer_id, 0))
    return driver


def decline(driver: CoreDriver, peer_id: str, term: int = 1) -> None:
    """Let a peer decline the leadership."""
    driver.receive(
        PreVoteResponse(
            sender=peer_id, receiver="n0", term=1, requested_term=term,
            result=VoteResult.REJECT_ALREADY_HAS_LEADER,
        )
    )  # fmt: skip


def asked_to_take_over(driver: CoreDriver, ticks: int) -> list[str]:
    """Advance time while followers answer; return whom the leader asked to take over."""
    asked = []
    for _ in range(ticks // HEARTBEAT_TICKS):
        messages = driver.tick(HEARTBEAT_TICKS)
        round_ = of_type(HeartBeatRequest, messages)[0].round
        for peer_id in ("n1", "n2"):
            messages += driver.receive(driver.heard_from(peer_id, round_))
        asked += [request.receiver for request in of_type(TakeLeadershipRequest, messages)]
    return asked


def test_a_member_that_is_behind_asks_for_no_vote_after_its_election_timeout() -> None:
    driver = behind()

    messages = driver.tick(2 * ELECTION_TICKS)

    assert not of_type(PreVoteRequest, messages)
    assert (driver.raft.role, driver.raft.leader_id) == (Role.FOLLOWER, None)


def test_a_member_that_is_behind_stands_in_the_end() -> None:
    """If all members are behind, or the others lack entries, one of them must lead."""
    driver = behind(randint=lambda _, high: high)

    assert not of_type(PreVoteRequest, driver.tick(YIELD_TICKS - 1))
    messages = driver.tick(HEARTBEAT_TICKS)

    assert [request.receiver for request in of_type(PreVoteRequest, messages)] == ["n1", "n2"]
    for peer_id in ("n1", "n2"):
        driver.receive(driver.pre_vote_from(peer_id))
    driver.receive(
        VoteResponse(
            sender="n1", receiver="n0", term=driver.raft.term,
            requested_term=driver.raft.term, result=VoteResult.ACCEPT,
        )
    )  # fmt: skip
    assert driver.raft.leads


def test_a_member_that_has_caught_up_stands_within_a_heartbeat() -> None:
    driver = behind(randint=lambda _, high: high)
    driver.tick(2 * ELECTION_TICKS)

    driver.raft.note_state(is_behind=False)

    assert of_type(PreVoteRequest, driver.tick(HEARTBEAT_TICKS))


def test_a_member_without_other_voters_does_not_wait() -> None:
    driver = CoreDriver(voter_count=1, term=1)
    driver.raft.note_state(is_behind=True)

    driver.tick(ELECTION_TICKS)
    driver.flush()

    assert driver.raft.master


def test_a_member_that_starts_behind_waits_from_its_start_on() -> None:
    driver = CoreDriver(term=1)
    driver.raft.note_state(is_behind=True)

    assert not of_type(PreVoteRequest, driver.tick(YIELD_TICKS - 1))
    assert of_type(PreVoteRequest, driver.tick(HEARTBEAT_TICKS))


def test_a_leader_that_speaks_again_begins_the_time_anew() -> None:
    driver = behind()
    driver.tick(YIELD_TICKS - 1)
    driver.receive(heartbeat(1))

    assert not of_type(PreVoteRequest, driver.tick(YIELD_TICKS - 1))


def test_a_member_that_stands_although_it_is_behind_goes_on_doing_so() -> None:
    driver = behind()
    driver.tick(YIELD_TICKS + HEARTBEAT_TICKS)

    again = driver.tick(3 * HEARTBEAT_TICKS)

    assert of_type(PreVoteRequest, again)
    assert driver.raft.elections[ElectionCause.NO_WINNER] >= 1


def test_a_member_that_is_behind_votes_as_any_other() -> None:
    answers = []
    for is_behind in (False, True):
        driver = CoreDriver(terms=[1, 1], term=1, randint=lambda _, high: high)
        driver.receive(heartbeat(1))
        driver.raft.note_state(is_behind=is_behind)
        driver.tick(ELECTION_TICKS)  # the leader is silent, and no timer has ended
        for end in ((0, 1), (1, 1), (2, 1)):
            asked = driver.receive(pre_vote_request(4, end=end))
            answers.append(only(PreVoteResponse, asked).result)
        vote = only(VoteResponse, driver.receive(vote_request(5, end=(1, 1))))
        answers.append(vote.result)

    assert answers[: len(answers) // 2] == answers[len(answers) // 2 :]
    assert answers[-1] is VoteResult.ACCEPT


def test_a_member_that_yields_grants_the_pre_vote_that_it_would_have_asked_for() -> None:
    driver = behind()
    driver.tick(2 * ELECTION_TICKS)

    asked = driver.receive(pre_vote_request(1, sender="n2", end=(-1, -1)))

    assert only(PreVoteResponse, asked).result is VoteResult.ACCEPT


def test_a_member_that_is_behind_declines_the_leadership() -> None:
    driver = behind()
    driver.tick()

    messages = driver.receive(TakeLeadershipRequest(sender="n1", receiver="n0", term=1))

    assert not of_type(VoteRequest, messages)
    answer = only(PreVoteResponse, messages)
    assert (answer.receiver, answer.term, answer.requested_term) == ("n1", 1, 1)
    assert answer.result is not VoteResult.ACCEPT
    assert driver.raft.refusals[RefusalCause.STATE_BEHIND] == 1


def test_a_leader_takes_appends_again_once_the_transferee_declines() -> None:
    driver = leader_of_three()
    driver.raft.transfer_leadership("n1")
    assert isinstance(driver.raft.propose(1, None), Refusal)

    decline(driver, "n1")

    assert driver.raft.transferee_id is None
    assert not isinstance(driver.raft.propose(1, None), Refusal)


def test_a_member_that_has_declined_gets_the_leadership_no_sooner_than_an_election_timeout() -> (
    None
):
    driver = leader_of_three()
    driver.raft.transfer_leadership("n1")
    decline(driver, "n1")

    refusal = driver.raft.transfer_leadership("n1")
    assert refusal is not None
    assert refusal.reason is RefusalReason.FALL_BEHIND_TOO_MUCH
    assert driver.raft.fit_peer_ids == ("n2",)
    asked_to_take_over(driver, ELECTION_TICKS)
    assert driver.raft.transfer_leadership("n1") is None


def test_only_the_transferee_in_this_term_can_decline() -> None:
    driver = leader_of_three()
    driver.raft.transfer_leadership("n1")

    decline(driver, "n2")
    decline(driver, "n1", term=0)

    assert driver.raft.transferee_id == "n1"


def test_a_preferred_member_that_declines_is_asked_again_later() -> None:
    driver = leader_of_three(preferred_leader_ids=("n2",))
    preference_ticks = driver.raft.config.preference_ticks
    assert set(asked_to_take_over(driver, preference_ticks + HEARTBEAT_TICKS)) == {"n2"}

    decline(driver, "n2")

    assert driver.raft.transferee_id is None
    assert not asked_to_take_over(driver, preference_ticks - HEARTBEAT_TICKS)
    assert asked_to_take_over(driver, 2 * preference_ticks)


def test_a_member_that_yields_sleeps_until_it_looks_again() -> None:
    driver = behind(randint=lambda _, high: high)
    driver.tick(2 * ELECTION_TICKS)

    idle_ticks = driver.raft.idle_ticks()
    driver.raft.pass_idle_ticks(idle_ticks, idle_ticks)

    assert 0 < idle_ticks < HEARTBEAT_TICKS
    assert not driver.work()


def test_a_leader_tells_what_is_committed_once_an_entry_of_its_term_is() -> None:
    driver = CoreDriver(terms=[1, 1, 2], term=2)
    assert driver.raft.reported_commit == ReportedCommit(index=-1, is_settled=False)

    driver.receive(heartbeat(2, committed_index=1))
    before = driver.raft.reported_commit
    driver.receive(compare(2, 2, 2, committed_index=1))
    older = driver.raft.reported_commit
    driver.receive(heartbeat(2, committed_index=2))
    settled = driver.raft.reported_commit
    driver.receive(heartbeat(2, committed_index=2))

    assert before == ReportedCommit(index=1, is_settled=False), "the log may differ up to there"
    assert older == ReportedCommit(index=1, is_settled=False), "the leader's own entries may wait"
    assert settled == driver.raft.reported_commit == ReportedCommit(index=2, is_settled=True)


def test_a_leader_is_told_its_first_entry_once_it_is_committed() -> None:
    driver = CoreDriver()
    driver.become_leader()
    before = driver.raft.reported_commit
    for peer_id in ("n1", "n2"):
        driver.agree(peer_id)
        driver.receive(driver.success_from(peer_id, 0))

    assert before == ReportedCommit(index=0, is_settled=False)
    assert driver.raft.reported_commit == ReportedCommit(index=0, is_settled=True)
