"""Handing the leadership over. Rules: Raft dissertation, 3.10; DLedger's preferred leaders."""

from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import TakeLeadershipRequest, VoteRequest, VoteResponse, VoteResult
from dledger_node.raft.proposals import Refusal, RefusalReason
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    CoreDriver,
    heartbeat,
    of_type,
    only,
    vote_request,
)


def leader_with_followers(**settings: object) -> CoreDriver:
    """A master of three members whose followers hold all of its log."""
    driver = CoreDriver(**settings)  # type: ignore[arg-type]
    driver.become_leader()
    for peer_id in ("n1", "n2"):
        driver.agree(peer_id)
        driver.receive(driver.success_from(peer_id, driver.raft.ledger_end_index))
    assert driver.raft.master
    return driver


def live(driver: CoreDriver, ticks: int) -> list[TakeLeadershipRequest]:
    """Let time pass while followers answer; returns whom the leader asks to take over."""
    asked = []
    for _ in range(ticks):
        messages = driver.tick()
        for peer_id in ("n1", "n2"):
            messages += driver.receive(driver.success_from(peer_id, driver.raft.ledger_end_index))
        asked += of_type(TakeLeadershipRequest, messages)
    return asked


def reason_of(refusal: Refusal | None) -> RefusalReason | None:
    return refusal.reason if refusal else None


def test_a_transferee_that_holds_all_is_asked_at_once() -> None:
    driver = leader_with_followers()
    assert driver.raft.transfer_leadership("n2") is None
    request = only(TakeLeadershipRequest, driver.work())

    assert (request.receiver, request.term) == ("n2", 1)
    assert driver.raft.transferee_id == "n2"


def test_a_transferee_that_lags_is_asked_once_it_holds_all() -> None:
    driver = leader_with_followers()
    driver.propose(3)
    driver.flush()
    driver.raft.transfer_leadership("n2")
    assert not of_type(TakeLeadershipRequest, driver.work())
    assert not of_type(TakeLeadershipRequest, driver.receive(driver.success_from("n1", 3)))
    messages = driver.receive(driver.success_from("n2", 3))

    assert only(TakeLeadershipRequest, messages).receiver == "n2"


def test_a_transferee_is_asked_once_nobody_waits_for_an_acknowledgement() -> None:
    """Its disk may be the faster one; a leader that is deposed then can only say "unknown"."""
    driver = leader_with_followers()
    driver.propose(3)
    driver.raft.transfer_leadership("n2")
    assert not of_type(TakeLeadershipRequest, driver.receive(driver.success_from("n2", 3)))
    messages = driver.flush()

    assert driver.raft.committed_index == driver.raft.ledger_end_index
    assert only(TakeLeadershipRequest, messages).receiver == "n2"


def test_another_followers_copy_is_as_good_as_the_leaders_own() -> None:
    driver = leader_with_followers()
    driver.propose(3)
    driver.raft.transfer_leadership("n2")
    driver.receive(driver.success_from("n2", 3))
    messages = driver.receive(driver.success_from("n1", 3))

    assert only(TakeLeadershipRequest, messages).receiver == "n2"


def test_a_leader_takes_no_appends_while_it_hands_over() -> None:
    driver = leader_with_followers()
    driver.raft.transfer_leadership("n1")
    refusal = driver.raft.propose(1, "bodies")

    assert isinstance(refusal, Refusal)
    assert refusal.reason is RefusalReason.LEADER_TRANSFERRING


def test_a_leader_takes_appends_again_when_the_transferee_does_not_stand_in_time() -> None:
    driver = leader_with_followers()
    driver.raft.transfer_leadership("n1")
    live(driver, ELECTION_TICKS)

    assert driver.raft.transferee_id is None
    assert not isinstance(driver.raft.propose(1, "bodies"), Refusal)


def test_the_request_is_repeated_with_the_heartbeats_for_it_may_be_lost() -> None:
    driver = leader_with_followers()
    driver.raft.transfer_leadership("n1")
    driver.work()

    assert of_type(TakeLeadershipRequest, driver.tick(HEARTBEAT_TICKS))


def test_what_cannot_be_done_is_refused_with_its_reason() -> None:
    follower, leader = CoreDriver(), leader_with_followers()
    assert reason_of(follower.raft.transfer_leadership("n1")) is RefusalReason.NOT_LEADER
    assert reason_of(leader.raft.transfer_leadership("n7")) is RefusalReason.UNKNOWN_MEMBER
    assert reason_of(leader.raft.transfer_leadership("n0")) is RefusalReason.UNKNOWN_MEMBER
    leader.raft.transfer_leadership("n1")

    assert reason_of(leader.raft.transfer_leadership("n2")) is RefusalReason.LEADER_TRANSFERRING


def test_a_member_that_lags_far_behind_is_not_handed_the_leadership() -> None:
    driver = leader_with_followers()
    driver.propose(1001)

    refusal = driver.raft.transfer_leadership("n1")

    assert reason_of(refusal) is RefusalReason.FALL_BEHIND_TOO_MUCH
    assert driver.raft.transferee_id is None


def test_a_transferee_stands_at_once_and_says_that_it_was_asked_to() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))
    messages = driver.receive(TakeLeadershipRequest(sender="n1", receiver="n0", term=1))

    assert driver.raft.term == 2
    assert all(request.take_leadership for request in of_type(VoteRequest, messages))
    assert len(of_type(VoteRequest, messages)) == 2


def test_only_the_leader_of_the_term_may_ask_for_it() -> None:
    driver = CoreDriver(term=3)
    driver.receive(heartbeat(3, sender="n2"))
    for sender, term in (("n1", 3), ("n2", 2)):
        driver.receive(TakeLeadershipRequest(sender=sender, receiver="n0", term=term))

    assert (driver.raft.role, driver.raft.term) == (Role.FOLLOWER, 3)


def test_a_transferee_is_elected_although_the_leader_is_heard() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1, sender="n2"))
    request = vote_request(2, sender="n1", take_leadership=True)

    assert only(VoteResponse, driver.receive(request)).result is VoteResult.ACCEPT


def test_the_fittest_is_the_one_that_lives_and_holds_most() -> None:
    driver = leader_with_followers(preferred_leader_ids=("n2",))
    assert driver.raft.fittest_peer_id == "n2", "the more wanted of equals"
    driver.propose(3)
    driver.receive(driver.success_from("n1", 3))
    assert driver.raft.fittest_peer_id == "n1"
    driver.tick(3 * HEARTBEAT_TICKS)

    assert driver.raft.fittest_peer_id is None


def test_a_leader_hands_over_to_a_preferred_member_that_was_fit_for_long() -> None:
    driver = leader_with_followers(preferred_leader_ids=("n2",))
    preference_ticks = driver.raft.config.preference_ticks

    assert not live(driver, preference_ticks - HEARTBEAT_TICKS)
    assert {request.receiver for request in live(driver, 2 * HEARTBEAT_TICKS)} == {"n2"}


def test_a_preferred_member_that_comes_and_goes_is_not_handed_the_leadership() -> None:
    driver = leader_with_followers(preferred_leader_ids=("n2",))
    for _ in range(5):
        assert not live(driver, driver.raft.config.preference_ticks - 4 * HEARTBEAT_TICKS)
        for _ in range(ELECTION_TICKS + HEARTBEAT_TICKS):
            messages = driver.tick() + driver.receive(driver.success_from("n1", 0))
            assert not of_type(TakeLeadershipRequest, messages)

    assert driver.raft.role is Role.LEADER


def test_a_preferred_member_whose_disk_stores_nothing_is_never_asked_to_lead() -> None:
    """DLedger's asks it again and again, since it answers heartbeats (its issue 287)."""
    driver = leader_with_followers(preferred_leader_ids=("n2",))
    stored_index = driver.raft.ledger_end_index
    driver.propose()
    driver.flush()
    for _ in range(3 * driver.raft.config.preference_ticks):
        messages = driver.tick()
        messages += driver.receive(driver.success_from("n1", stored_index + 1))
        messages += driver.receive(driver.success_from("n2", stored_index))
        assert not of_type(TakeLeadershipRequest, messages)

    assert driver.raft.role is Role.LEADER
    assert driver.raft.committed_index == stored_index + 1


def test_the_preferred_leader_itself_hands_over_to_nobody() -> None:
    driver = leader_with_followers(preferred_leader_ids=("n0", "n2"))

    assert not live(driver, 3 * driver.raft.config.preference_ticks)


def test_a_transfer_that_failed_is_tried_again_only_after_the_same_wait() -> None:
    driver = leader_with_followers(preferred_leader_ids=("n2",))
    preference_ticks = driver.raft.config.preference_ticks
    live(driver, preference_ticks + ELECTION_TICKS + 2 * HEARTBEAT_TICKS)
    assert driver.raft.transferee_id is None

    assert not live(driver, preference_ticks - 2 * ELECTION_TICKS)
