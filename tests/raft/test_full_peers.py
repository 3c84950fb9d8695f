"""A leader learns from the answers to its heartbeats which volumes are full."""

import pytest

from dledger_node.raft.membership import AddLearner, Demote, Remove
from dledger_node.raft.messages import HeartBeatRequest, HeartBeatResponse
from dledger_node.raft.proposals import RefusalReason
from dledger_sim.stage.driver import (
    ELECTION_TICKS,
    HEARTBEAT_TICKS,
    CoreDriver,
    heartbeat,
    of_type,
    only,
)


def leader_of(voter_count: int, **settings: object) -> CoreDriver:
    """Return a leader whose first entry all peers hold."""
    driver = CoreDriver(voter_count=voter_count, **settings)  # type: ignore[arg-type]
    driver.become_leader()
    for peer_id in driver.voters():
        driver.agree(peer_id)
        driver.receive(driver.success_from(peer_id, 0))
    return driver


def next_round(driver: CoreDriver) -> int:
    """Let the leader send a round of heartbeats; return its number."""
    sent = of_type(HeartBeatRequest, driver.tick(HEARTBEAT_TICKS))
    return sent[0].round


def answer(driver: CoreDriver, *, full: str = "", room: str = "") -> None:
    """Let peers answer a round of heartbeats."""
    round_ = next_round(driver)
    for peer_id in full.split():
        driver.receive(driver.heard_from(peer_id, round_, full=True))
    for peer_id in room.split():
        driver.receive(driver.heard_from(peer_id, round_))


@pytest.mark.parametrize("has_room", [True, False])
def test_a_follower_tells_its_leader_whether_its_volume_is_full(has_room: bool) -> None:
    driver = CoreDriver()
    driver.receive(heartbeat(1))

    driver.raft.tick(has_room=has_room)

    assert only(HeartBeatResponse, driver.receive(heartbeat(1))).full is not has_room


@pytest.mark.parametrize(
    ("voter_count", "full", "lacks_room"),
    [
        (2, "n1", True),
        (3, "n1", False),
        (3, "n1 n2", True),
        (4, "n1", False),
        (4, "n1 n2", True),
        (5, "n1 n2", False),
        (5, "n1 n2 n3", True),
    ],
)
def test_room_is_lacking_once_every_majority_includes_a_full_volume(
    voter_count: int, full: str, lacks_room: bool
) -> None:
    driver = leader_of(voter_count)
    assert not driver.raft.lacks_room, "a new leader knows nothing"
    others = [peer_id for peer_id in driver.voters() if peer_id not in full]

    answer(driver, full=full, room=" ".join(others))

    assert driver.raft.full_peers == full.split()
    assert driver.raft.lacks_room is lacks_room


def test_the_first_answer_that_says_otherwise_ends_it() -> None:
    driver = leader_of(3)
    answer(driver, full="n1 n2")
    assert driver.raft.lacks_room

    answer(driver, room="n1")

    assert not driver.raft.lacks_room


def test_a_late_answer_to_an_earlier_round_changes_nothing() -> None:
    driver = leader_of(3)
    late = driver.heard_from("n1", next_round(driver), full=True)
    answer(driver, full="n2", room="n1")

    driver.receive(late)

    assert driver.raft.full_peers == ["n2"]


def test_what_a_silent_peer_said_expires() -> None:
    driver = leader_of(5)
    answer(driver, full="n1 n2 n3", room="n4")
    for _ in range(ELECTION_TICKS // HEARTBEAT_TICKS - 1):
        answer(driver, full="n1 n2", room="n4")
    assert driver.raft.lacks_room

    answer(driver, full="n1 n2", room="n4")

    assert driver.raft.full_peers == ["n1", "n2"]
    assert not driver.raft.lacks_room


def test_what_a_leader_knew_ends_with_its_term() -> None:
    driver = leader_of(3)
    answer(driver, full="n1 n2")

    driver.receive(heartbeat(driver.raft.term + 1))
    assert not driver.raft.lacks_room
    assert driver.raft.full_peers == []
    driver.become_leader()

    assert not driver.raft.lacks_room


def test_a_full_learner_counts_for_nothing() -> None:
    driver = leader_of(3, addable_ids=("n3",))
    assert driver.change(AddLearner("n3")) is None
    driver.flush()

    answer(driver, full="n2 n3", room="n1")

    assert driver.raft.full_peers == ["n2", "n3"]
    assert not driver.raft.lacks_room


def test_a_change_of_members_counts_at_once() -> None:
    driver = leader_of(4)
    answer(driver, full="n2 n3", room="n1")
    assert driver.raft.lacks_room, "two of four are no majority"

    assert driver.change(Demote("n3")) is None

    assert not driver.raft.lacks_room, "two of three are one"


def test_a_full_peer_is_not_asked_to_lead() -> None:
    """It would not stand, and the leader would take no appends until it had waited in vain."""
    driver = leader_of(3)
    answer(driver, full="n1", room="n2")

    refusal = driver.raft.transfer_leadership("n1")

    assert driver.raft.fit_peer_ids == ("n2",)
    assert refusal is not None
    assert refusal.reason is RefusalReason.FALL_BEHIND_TOO_MUCH
    answer(driver, room="n1 n2")
    assert driver.raft.transfer_leadership("n1") is None


def test_a_change_leaves_a_majority_of_voters_that_have_room() -> None:
    driver = leader_of(3)
    answer(driver, full="n1", room="n2")

    assert driver.change(Remove("n2")) is RefusalReason.QUORUM_AT_RISK
    assert driver.change(Remove("n1")) is None, "n1 is the full member"
