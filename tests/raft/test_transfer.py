"""Leadership transfer. Rules: Raft dissertation, 3.10; DLedger's preferred leaders."""

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
    """Return the master of a group of three whose followers hold all of its log."""
    driver = CoreDriver(**settings)  # type: ignore[arg-type]
    driver.become_leader()
    for peer_id in ("n1", "n2"):
        driver.agree(peer_id)
        driver.receive(driver.success_from(peer_id, driver.raft.ledger_end_index))
    assert driver.raft.master
    return driver


def live(driver: CoreDriver, ticks: int) -> list[TakeLeadershipRequest]:
    """Advance time while followers answer; return the leader's requests to take over."""
    asked = []
    for _ in range(ticks):
        messages = driver.tick()
        for peer_id in ("n1", "n2"):
            messages += driver.receive(driver.success_from(peer_id, driver.raft.ledger_end_index))
        asked += of_type(TakeLeadershipRequest, messages)
    return asked


def reason_of(refusal: Refusal | None) -> RefusalReason | None:
    return refusal.reason if refusal else None


def test_a_leader_asks_a_caught_up_transferee_at_once() -> None:
    driver = leader_with_followers()
    assert driver.raft.transfer_leadership("n2") is None
    request = only(TakeLeadershipRequest, driver.work())

    assert (request.receiver, request.term) == ("n2", 1)
    assert driver.raft.transferee_id == "n2"


def test_a_leader_asks_a_lagging_transferee_once_it_has_caught_up() -> None:
    driver = leader_with_followers()
    driver.propose(3)
    driver.flush()
    driver.raft.transfer_leadership("n2")
    assert not of_type(TakeLeadershipRequest, driver.work())
    assert not of_type(TakeLeadershipRequest, driver.receive(driver.success_from("n1", 3)))
    messages = driver.receive(driver.success_from("n2", 3))

    assert only(TakeLeadershipRequest, messages).receiver == "n2"


def test_a_leader_asks_the_transferee_once_all_entries_are_committed() -> None:
    """The transferee's disk may be faster. A leader that is deposed before a majority holds the
    entries must answer "unknown".
    """
    driver = leader_with_followers()
    driver.propose(3)
    driver.raft.transfer_leadership("n2")
    assert not of_type(TakeLeadershipRequest, driver.receive(driver.success_from("n2", 3)))
    messages = driver.flush()

    assert driver.raft.committed_index == driver.raft.ledger_end_index
    assert only(TakeLeadershipRequest, messages).receiver == "n2"


def test_a_transfer_does_not_wait_for_the_leaders_own_flush() -> None:
    driver = leader_with_followers()
    driver.propose(3)
    driver.raft.transfer_leadership("n2")
    driver.receive(driver.success_from("n2", 3))
    messages = driver.receive(driver.success_from("n1", 3))

    assert only(TakeLeadershipRequest, messages).receiver == "n2"


def test_a_leader_refuses_appends_during_a_transfer() -> None:
    driver = leader_with_followers()
    driver.raft.transfer_leadership("n1")
    refusal = driver.raft.propose(1, "bodies")

    assert isinstance(refusal, Refusal)
    assert refusal.reason is RefusalReason.LEADER_TRANSFERRING


def test_a_leader_takes_appends_again_if_the_transferee_does_not_stand_in_time() -> None:
    driver = leader_with_followers()
    driver.raft.transfer_leadership("n1")
    live(driver, ELECTION_TICKS)

    assert driver.raft.transferee_id is None
    assert not isinstance(driver.raft.propose(1, "bodies"), Refusal)


def test_a_leader_repeats_the_request_to_stand_with_its_heartbeats() -> None:
    driver = leader_with_followers()
    driver.raft.transfer_leadership("n1")
    driver.work()

    assert of_type(TakeLeadershipRequest, driver.tick(HEARTBEAT_TICKS))


def test_a_leader_refuses_an_impossible_transfer_with_its_reason() -> None:
    follower, leader = CoreDriver(), leader_with_followers()
    assert reason_of(follower.raft.transfer_leadership("n1")) is RefusalReason.NOT_LEADER
    assert reason_of(leader.raft.transfer_leadership("n7")) is RefusalReason.UNKNOWN_MEMBER
    assert reason_of(leader.raft.transfer_leadership("n0")) is RefusalReason.UNKNOWN_MEMBER
    leader.raft.transfer_leadership("n1")

    assert reason_of(leader.raft.transfer_leadership("n2")) is RefusalReason.LEADER_TRANSFERRING


def test_a_leader_does_not_hand_over_to_a_member_that_lags_far_behind() -> None:
    driver = leader_with_followers()
    driver.propose(1001)

    refusal = driver.raft.transfer_leadership("n1")

    assert reason_of(refusal) is RefusalReason.FALL_BEHIND_TOO_MUCH
    assert driver.raft.transferee_id is None


def test_a_leader_does_not_hand_over_to_a_member_that_is_silent() -> None:
    """It would take no appends for an election timeout, while it waited in vain."""
    driver = leader_with_followers()
    for _ in range(ELECTION_TICKS):
        driver.tick()
        driver.receive(driver.success_from("n1", 0))

    assert reason_of(driver.raft.transfer_leadership("n2")) is RefusalReason.FALL_BEHIND_TOO_MUCH
    assert driver.raft.transfer_leadership("n1") is None


def test_a_transferee_stands_at_once_and_says_that_its_leader_asked() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))
    messages = driver.receive(TakeLeadershipRequest(sender="n1", receiver="n0", term=1))

    assert driver.raft.term == 2
    assert all(request.take_leadership for request in of_type(VoteRequest, messages))
    assert len(of_type(VoteRequest, messages)) == 2


def test_a_member_obeys_a_transfer_only_from_the_leader_of_its_term() -> None:
    driver = CoreDriver(term=3)
    driver.receive(heartbeat(3, sender="n2"))
    for sender, term in (("n1", 3), ("n2", 2)):
        driver.receive(TakeLeadershipRequest(sender=sender, receiver="n0", term=term))

    assert (driver.raft.role, driver.raft.term) == (Role.FOLLOWER, 3)


def test_a_transferee_is_elected_although_the_leader_is_alive() -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1, sender="n2"))
    request = vote_request(2, sender="n1", take_leadership=True)

    assert only(VoteResponse, driver.receive(request)).result is VoteResult.ACCEPT


def test_the_fittest_peer_is_the_live_one_with_the_longest_log() -> None:
    driver = leader_with_followers(preferred_leader_ids=("n2",))
    assert driver.raft.fit_peer_ids[:1] == ("n2",), "the preferred one of two equal peers"
    driver.propose(3)
    driver.receive(driver.success_from("n1", 3))
    assert driver.raft.fit_peer_ids[:1] == ("n1",)
    driver.tick(3 * HEARTBEAT_TICKS)

    assert driver.raft.fit_peer_ids == ()


def test_a_leader_hands_over_to_a_preferred_member_after_it_was_fit_for_long() -> None:
    driver = leader_with_followers(preferred_leader_ids=("n2",))
    preference_ticks = driver.raft.config.preference_ticks

    assert not live(driver, preference_ticks - HEARTBEAT_TICKS)
    assert {request.receiver for request in live(driver, 2 * HEARTBEAT_TICKS)} == {"n2"}


def test_a_leader_does_not_hand_over_to_an_unstable_preferred_member() -> None:
    driver = leader_with_followers(preferred_leader_ids=("n2",))
    for _ in range(5):
        assert not live(driver, driver.raft.config.preference_ticks - 4 * HEARTBEAT_TICKS)
        for _ in range(ELECTION_TICKS + HEARTBEAT_TICKS):
            messages = driver.tick() + driver.receive(driver.success_from("n1", 0))
            assert not of_type(TakeLeadershipRequest, messages)

    assert driver.raft.role is Role.LEADER


def test_a_leader_does_not_hand_over_to_a_preferred_member_with_a_stuck_disk() -> None:
    """DLedger asks such a member repeatedly, since it answers heartbeats (its issue 287)."""
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


def test_a_preferred_leader_keeps_the_leadership() -> None:
    driver = leader_with_followers(preferred_leader_ids=("n0", "n2"))

    assert not live(driver, 3 * driver.raft.config.preference_ticks)


def test_a_leader_repeats_a_failed_transfer_only_after_the_same_wait() -> None:
    driver = leader_with_followers(preferred_leader_ids=("n2",))
    preference_ticks = driver.raft.config.preference_ticks
    live(driver, preference_ticks + ELECTION_TICKS + 2 * HEARTBEAT_TICKS)
    assert driver.raft.transferee_id is None

    assert not live(driver, preference_ticks - 2 * ELECTION_TICKS)
