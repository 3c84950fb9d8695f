"""A member whose host lost the end of its log with its power (AsyncFlush): for whom it votes.

The argument why is in `dledger_node.raft.recalling`.
"""

import pytest

from dledger_node.raft.log_terms import LogEnd
from dledger_node.raft.member_state import Role
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.raft.messages import (
    CompareRequest,
    JoinResponse,
    PreVoteResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.recall_messages import Mark, RecallRequest, RecallResponse
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    INCARNATION,
    CoreDriver,
    append,
    compare,
    heartbeat,
    of_type,
    only,
    pre_vote_request,
    vote_request,
)

RECALL_TICKS = 2 * ELECTION_TICKS
LOST = LogEnd(2, 5)
"""The log that the member confirmed. Its disk ends at index 2 of the same term."""
CONFIRMED = Mark(2, 5, 2, end=LOST)
CONFIRMED_TO_LEADER = CONFIRMED._replace(is_whole=True)


def starting(**settings: object) -> CoreDriver:
    """A member of three that has just started with entries up to (2, 2), in term 2."""
    named: dict[str, object] = {
        "terms": (1, 1, 2), "recall_ticks": RECALL_TICKS, "confirms_unflushed": True, **settings
    }  # fmt: skip
    return CoreDriver(**named)  # type: ignore[arg-type]


def answer(sender: str, mark: Mark | None = None, term: int = 2) -> RecallResponse:
    return RecallResponse(
        sender=sender, receiver="n0", term=term, incarnation=INCARNATION, mark=mark
    )


def knowing(first: Mark | None, second: Mark | None) -> CoreDriver:
    """A member that has learned what both others remember."""
    driver = starting()
    driver.receive(answer("n1", first))
    driver.receive(answer("n2", second))
    return driver


def votes(driver: CoreDriver, request: VoteRequest) -> bool:
    results = [one.result for one in of_type(VoteResponse, driver.receive(request))]
    return results == [VoteResult.ACCEPT]


def pushed(driver: CoreDriver, last_index: int) -> None:
    """Let n1, the leader of term 3, push entries of its term up to `last_index`, and flush them."""
    driver.receive(compare(3, 2, 2))
    driver.receive(append(3, (2, 2), last_index))
    driver.flush()


@pytest.mark.parametrize("end", [(2, 5), (2, 9), (3, 3)], ids=["equal", "longer", "later"])
def test_it_votes_for_a_log_that_ends_no_earlier_than_the_one_it_lost(end: tuple[int, int]) -> None:
    driver = knowing(CONFIRMED, None)

    assert not driver.raft.joining
    assert votes(driver, vote_request(3, sender="n1", end=(end[1], end[0])))


@pytest.mark.parametrize("end", [(2, 4), (2, 2), (1, 9)], ids=["shorter", "as here", "older"])
def test_it_refuses_a_log_that_lacks_what_it_confirmed(end: tuple[int, int]) -> None:
    driver = knowing(None, CONFIRMED)

    assert not votes(driver, vote_request(3, sender="n1", end=(end[1], end[0])))
    sent = driver.receive(pre_vote_request(3, sender="n1", end=(end[1], end[0])))
    assert VoteResult.ACCEPT not in [one.result for one in of_type(PreVoteResponse, sent)]


def test_the_latest_end_that_any_peer_remembers_counts() -> None:
    driver = knowing(CONFIRMED, Mark(2, -1, -1, end=LogEnd(2, 7)))

    assert not votes(driver, vote_request(3, sender="n1", end=(6, 2)))
    assert votes(driver, vote_request(4, sender="n1", end=(7, 2)))


def test_a_promise_of_an_earlier_term_counts_although_the_disk_is_in_a_later_one() -> None:
    """It confirmed entries to the leader of term 2, learned of term 3, and lost the entries."""
    driver = starting(term=3)
    driver.receive(answer("n1", CONFIRMED, term=3))
    driver.receive(answer("n2", term=3))

    assert not votes(driver, vote_request(4, sender="n2", end=(3, 2)))


def test_it_does_not_stand_for_election() -> None:
    driver = knowing(CONFIRMED, None)

    driver.tick(5 * ELECTION_TICKS)

    assert driver.raft.role is Role.FOLLOWER


def test_a_leader_of_that_term_knows_all_although_another_member_is_silent() -> None:
    driver = starting()
    driver.receive(answer("n1", CONFIRMED_TO_LEADER))
    assert driver.raft.recalling, "n2 may know that the disk is of an older term"

    driver.tick(RECALL_TICKS)

    assert not driver.raft.joining
    assert votes(driver, vote_request(3, sender="n1", end=(5, 2)))
    asked = of_type(RecallRequest, driver.tick(HEARTBEAT_TICKS))
    assert [one.receiver for one in asked] == ["n2"]


def test_it_joins_if_a_silent_member_may_remember_more() -> None:
    driver = starting()
    driver.receive(answer("n1", CONFIRMED))

    assert driver.raft.recalling
    driver.tick(RECALL_TICKS)

    assert "n2 may remember more" in driver.raft.joining
    assert driver.hard_state.joining


def test_a_later_term_means_an_older_disk() -> None:
    driver = knowing(CONFIRMED_TO_LEADER, Mark(4, -1, -1, end=LOST))

    assert "the disk is older than what n2 remembers" in driver.raft.joining
    assert driver.hard_state.promised_end is None


def test_what_it_lost_survives_another_start_although_nobody_remembers_it() -> None:
    saved = knowing(CONFIRMED, None).hard_state.promised_end
    assert saved == LOST

    driver = starting(promised_end=saved)
    driver.receive(answer("n1"))
    driver.receive(answer("n2"))

    assert not votes(driver, vote_request(3, sender="n1", end=(4, 2)))


def test_it_votes_as_all_others_once_its_disk_has_what_it_confirmed() -> None:
    driver = knowing(CONFIRMED, None)
    assert driver.raft.lacks_promised

    pushed(driver, 3)

    assert not driver.raft.lacks_promised, "an entry of term 3 stands after all before"
    assert driver.hard_state.promised_end is None
    driver.tick(5 * ELECTION_TICKS)
    assert driver.raft.role is Role.CANDIDATE


def test_entries_that_are_not_on_its_disk_yet_do_not_count() -> None:
    driver = knowing(CONFIRMED, None)

    driver.receive(compare(3, 2, 2))
    driver.receive(append(3, (2, 2), 3))

    assert driver.raft.lacks_promised


def test_a_disk_that_lacks_nothing_is_believed() -> None:
    driver = knowing(Mark(2, 2, 2, end=LogEnd(2, 2)), Mark(2, -1, -1, end=LogEnd(1, 9)))

    assert not driver.raft.lacks_promised
    assert votes(driver, vote_request(3, sender="n1", end=(2, 2)))


def test_even_a_leader_gives_up_when_it_learns_late_that_it_lost_entries() -> None:
    driver = starting()
    driver.tick(RECALL_TICKS)
    driver.receive(answer("n1"))
    driver.become_leader()
    lost = LogEnd(driver.raft.term, 9)

    driver.receive(answer("n2", Mark(driver.raft.term, 9, lost.term, end=lost)))

    assert driver.raft.role is Role.FOLLOWER
    assert driver.hard_state.promised_end == lost


def test_what_a_learner_holds_binds_nobody() -> None:
    """The only voter would wait for ever for a leader that has it."""
    membership = MembershipEntry(1, Membership(("n0",), ("n1",)))
    driver = starting(voter_count=1, addable_ids=("n1",), memberships=(membership,))

    driver.receive(answer("n1", Mark(2, 2, 2, end=LOST)))

    assert not driver.raft.lacks_promised
    driver.tick(5 * ELECTION_TICKS)
    assert driver.raft.role is Role.LEADER


def test_what_a_learner_knows_to_be_committed_binds() -> None:
    membership = MembershipEntry(1, Membership(("n0", "n2"), ("n1",)))
    driver = starting(memberships=(membership,))

    driver.receive(answer("n1", CONFIRMED))
    driver.receive(answer("n2"))

    assert driver.hard_state.promised_end == LOST


def test_entries_that_came_before_a_kill_count_at_the_next_start() -> None:
    """It was killed after they were written and before it had forgotten that it lacked them."""
    driver = CoreDriver(terms=(1, 1, 2, 2, 2, 2), promised_end=LOST, confirms_unflushed=True)

    assert not driver.raft.lacks_promised
    driver.tick(5 * ELECTION_TICKS)
    assert driver.raft.role is Role.CANDIDATE


def test_a_saved_end_is_enough_although_a_member_is_silent_at_the_next_start() -> None:
    driver = starting(promised_end=LOST)
    driver.receive(answer("n1", CONFIRMED))

    driver.tick(RECALL_TICKS)

    assert not driver.raft.joining
    assert votes(driver, vote_request(3, sender="n1", end=(5, 2)))


def test_it_forgets_what_it_lacked_only_when_the_disk_has_it_flushed() -> None:
    """Its host may lose power again before, when its peers have forgotten their marks."""
    driver = knowing(CONFIRMED, None)
    driver.receive(compare(3, 2, 2))
    driver.receive(append(3, (2, 2), 3))

    driver.raft.persisted(3, 3, is_flushed=False)
    assert driver.raft.lacks_promised

    driver.raft.persisted(3, 3)
    assert not driver.raft.lacks_promised


def test_it_stops_joining_when_the_silent_member_answers_at_last() -> None:
    """Two members that join because they did not hear each other would block each other."""
    driver = starting()
    driver.receive(answer("n1", CONFIRMED))
    driver.tick(RECALL_TICKS)
    assert driver.raft.joining

    driver.receive(answer("n2"))

    assert not driver.raft.joining
    assert driver.hard_state.promised_end == LOST
    assert votes(driver, vote_request(3, sender="n1", end=(5, 2)))


def test_entries_that_the_leader_has_removed_are_remembered_by_a_term_that_they_had() -> None:
    """With the leader's own term, a sound disk would look shortened."""
    leader = CoreDriver(terms=(1,) * 10, committed_index=9)
    leader.become_leader()
    question = only(CompareRequest, leader.questions_to("n1"))
    leader.receive(leader.denial_from("n1", 5, probe=question.probe))
    question = only(CompareRequest, leader.questions_to("n1"))
    leader.receive(leader.success_from("n1", 5, probe=question.probe))
    leader.raft.remove_before(8)

    asked = RecallRequest(sender="n1", receiver="n0", term=2, incarnation=4)
    mark = only(RecallResponse, leader.receive(asked)).mark

    assert mark
    assert mark.end == LogEnd(1, 5)


def test_it_joins_until_what_it_was_pushed_is_flushed() -> None:
    driver = CoreDriver(joining=True, confirms_unflushed=True)
    for peer_id, leading in (("n1", True), ("n2", False)):
        driver.receive(
            JoinResponse(
                sender=peer_id, receiver="n0", term=3, incarnation=INCARNATION,
                ledger_end_index=4, leading=leading, joining=False, alone=False,
            )
        )  # fmt: skip
    driver.receive(heartbeat(3))
    driver.receive(append(3, (-1, -1), 4))

    driver.raft.persisted(4, 3, is_flushed=False)
    driver.work()
    assert driver.hard_state.joining, "a loss of power would leave it with less than it had"

    driver.flush()
    assert not driver.hard_state.joining


def restarted(driver: CoreDriver, **settings: object) -> CoreDriver:
    """The member's next start, with the hard state that it saved."""
    saved = driver.hard_state
    return starting(
        flushed=saved.flushed, term=saved.term, promised_end=saved.promised_end, **settings
    )


def test_a_leader_that_starts_in_sync_flush_still_compares_the_end_that_it_confirmed() -> None:
    """It ran AsyncFlush and its host lost power: what it committed in memory counts."""
    running = starting()
    running.work()
    driver = restarted(running, confirms_unflushed=False)
    driver.receive(answer("n1", Mark(2, 2, 2, end=LOST)))
    driver.receive(answer("n2"))

    assert not votes(driver, vote_request(3, sender="n2", end=(2, 2)))
    driver.tick(5 * ELECTION_TICKS)
    assert driver.raft.role is Role.FOLLOWER


def test_a_disk_of_java_or_an_earlier_version_counts_as_unflushed() -> None:
    driver = starting(confirms_unflushed=False, flushed=False)
    driver.receive(answer("n1", Mark(2, 2, 2, end=LOST)))
    driver.receive(answer("n2"))

    assert not votes(driver, vote_request(3, sender="n2", end=(2, 2)))


def test_the_first_work_under_async_flush_withdraws_that_all_was_flushed() -> None:
    driver = starting(flushed=True)

    ready = driver.raft.ready()

    assert ready is not None
    assert ready.hard_state is not None
    assert not ready.hard_state.flushed


def test_sync_flush_counts_once_all_others_have_answered_and_nothing_is_missing() -> None:
    driver = starting(confirms_unflushed=False, flushed=False)
    driver.receive(answer("n1"))
    driver.tick(RECALL_TICKS)
    assert not driver.hard_state.flushed, "n2 may remember more"

    driver.receive(answer("n2"))

    assert driver.hard_state.flushed


def test_sync_flush_does_not_count_while_the_lost_end_is_missing() -> None:
    driver = starting(confirms_unflushed=False, flushed=False)
    driver.receive(answer("n1", CONFIRMED))
    driver.receive(answer("n2"))
    assert not driver.hard_state.flushed

    pushed(driver, 6)

    assert driver.hard_state.promised_end is None
    assert driver.hard_state.flushed


def test_async_flush_never_says_that_all_was_flushed() -> None:
    driver = knowing(None, None)
    driver.tick()

    assert not driver.raft.recalling
    assert not driver.hard_state.flushed


def test_what_the_leader_had_committed_counts_although_its_follower_had_not_flushed_it() -> None:
    """The leader ran AsyncFlush, and the follower that remembers this SyncFlush."""
    driver = knowing(None, Mark(2, 5, 2, end=LogEnd(2, 3)))

    assert not votes(driver, vote_request(3, sender="n2", end=(4, 2)))
    assert votes(driver, vote_request(4, sender="n1", end=(5, 2)))
