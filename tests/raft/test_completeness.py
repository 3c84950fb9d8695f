"""A member confirms nothing to a leader whose log may lack an entry that is committed here."""

import pytest

from dledger_node.raft.log_terms import LogEnd
from dledger_node.raft.messages import (
    InstallSnapshotRequest,
    JoinResponse,
    Message,
    PushResponse,
    PushResult,
)
from dledger_node.raft.recall_messages import RecallRequest, RecallResponse
from dledger_sim.stage.driver import INCARNATION, CoreDriver, append, compare, heartbeat, only


def longer(**settings: bool) -> CoreDriver:
    """Return a member that knows its six entries of term 1 as committed."""
    return CoreDriver(terms=[1] * 6, committed_index=5, **settings)


def matches(messages: list[Message]) -> list[int]:
    """Return the indexes that were confirmed."""
    return [one.match_index for one in messages if isinstance(one, PushResponse)]


@pytest.mark.parametrize("term", [1, 2])
def test_a_probe_below_the_committed_index_confirms_nothing(term: int) -> None:
    driver = longer()
    answer = only(PushResponse, driver.receive(compare(term, 3, 1)))

    assert (answer.result, answer.match_index) == (PushResult.SUCCESS, -1)
    assert matches(driver.flush()) == []


def test_pushes_that_end_below_the_committed_index_confirm_nothing() -> None:
    driver = longer()
    driver.receive(compare(1, 2, 1))

    assert matches(driver.receive(append(1, (2, 1), 4))) == []


@pytest.mark.parametrize("settings", [{}, {"confirms_unflushed": True}], ids=["sync", "async"])
def test_the_reason_names_both_logs(settings: dict[str, bool]) -> None:
    driver = longer(**settings)
    driver.receive(compare(1, 3, 1))

    reason = driver.raft.leader_lacks
    assert "n1, the leader of term 1, has shown its log up to entry 3" in reason
    assert "entries up to 5, of term 1, are committed here" in reason
    assert "ends at entry 5" in reason


def test_a_leader_that_shows_the_committed_entry_is_confirmed() -> None:
    driver = longer()
    driver.receive(compare(1, 3, 1))

    assert only(PushResponse, driver.receive(append(1, (3, 1), 5))).match_index == 5
    assert driver.raft.leader_lacks == ""


def test_a_committed_index_shows_that_the_leader_has_the_entry() -> None:
    driver = longer()
    answer = only(PushResponse, driver.receive(compare(1, 3, 1, committed_index=5)))

    assert answer.match_index == 3, "only what the leader has asked about is confirmed"
    assert driver.raft.leader_lacks == ""


def test_every_leader_must_show_it_again() -> None:
    driver = longer()
    driver.receive(compare(2, 5, 1))
    assert driver.raft.leader_lacks == ""
    driver.receive(heartbeat(3, sender="n2"))

    assert "n2, the leader of term 3" in driver.raft.leader_lacks


def test_a_leader_that_pushes_another_entry_is_confirmed_nothing_more() -> None:
    driver = CoreDriver(terms=[1] * 6, committed_index=3)
    driver.receive(compare(2, 5, 1, committed_index=3))
    driver.receive(append(2, (1, 1), 4))

    answer = only(PushResponse, driver.receive(compare(2, 1, 1, committed_index=9)))
    assert answer.match_index == -1
    assert driver.raft.ledger_end_index == 5
    assert "its push ends at entry 4" in driver.raft.contradiction
    assert "this log ends at entry 5" in driver.raft.contradiction


def test_nothing_is_confirmed_after_a_push_that_does_not_follow_this_log() -> None:
    driver = CoreDriver(terms=[1] * 6, committed_index=3)
    driver.receive(compare(1, 5, 1))
    driver.raft.note_difference("n1", 1)

    assert only(PushResponse, driver.receive(compare(1, 5, 1))).match_index == -1
    assert "pushes of n1, the leader of term 1, do not follow this log" in driver.raft.leader_lacks
    driver.receive(append(1, (5, 1), 6))
    assert only(PushResponse, driver.flush()).match_index == 6
    assert driver.raft.leader_lacks == ""


def test_a_difference_from_another_leader_changes_nothing() -> None:
    driver = CoreDriver(terms=[1] * 6, committed_index=3)
    driver.receive(compare(2, 5, 1))
    driver.raft.note_difference("n1", 1)
    driver.raft.note_difference("n2", 2)

    assert only(PushResponse, driver.receive(compare(2, 5, 1))).match_index == 5


def test_a_member_without_a_committed_entry_confirms_at_once() -> None:
    driver = CoreDriver(terms=[1] * 6)

    assert only(PushResponse, driver.receive(compare(1, 3, 1))).match_index == 3
    assert driver.raft.leader_lacks == ""


def test_a_probe_before_the_first_entry_confirms_nothing_if_the_leader_is_shorter() -> None:
    driver = CoreDriver(terms=[1] * 9, begin_index=5, committed_index=7)

    assert only(PushResponse, driver.receive(compare(1, 3, 1))).match_index == -1
    assert only(PushResponse, driver.receive(compare(1, 3, 1, committed_index=7))).match_index == 5


def test_a_first_entry_that_is_the_committed_one_is_not_taken_for_shown() -> None:
    driver = CoreDriver(terms=[1] * 9, begin_index=7, committed_index=7)

    assert only(PushResponse, driver.receive(compare(2, 3, 1))).match_index == -1
    assert "has shown its log up to entry 3" in driver.raft.leader_lacks
    assert only(PushResponse, driver.receive(compare(2, 3, 1, committed_index=7))).match_index == 7


@pytest.mark.parametrize("begin_index", [5, 6, 7])
def test_a_repeated_install_confirms_nothing_if_the_leader_is_shorter(begin_index: int) -> None:
    driver = CoreDriver(terms=[1] * 9, begin_index=begin_index, committed_index=7)

    def install(committed_index: int) -> InstallSnapshotRequest:
        return InstallSnapshotRequest(
            sender="n1", receiver="n0", term=1, first_index=5, last_index=6, entries_term=1,
            committed_index=committed_index, entries="bytes",
        )  # fmt: skip

    assert matches(driver.receive(install(6))) == []
    assert matches(driver.receive(install(7))) == [begin_index]


def test_a_member_that_joins_does_not_vote_by_what_its_leader_lacks() -> None:
    driver = CoreDriver(terms=[1] * 6, committed_index=5, joining=True)
    for peer_id, leads in (("n1", True), ("n2", False)):
        driver.receive(
            JoinResponse(
                sender=peer_id, receiver="n0", term=1, incarnation=INCARNATION,
                ledger_end_index=3, leading=leads, joining=False, alone=False,
            )
        )  # fmt: skip
    driver.receive(compare(1, 2, 1))
    assert driver.raft.joining

    driver.receive(compare(1, 5, 1))
    assert not driver.raft.joining


def test_a_leader_is_not_told_that_it_promised_what_it_never_had() -> None:
    """Under AsyncFlush a leader that restarts waits for all that its followers remember of it."""
    driver = longer(confirms_unflushed=True)
    driver.receive(compare(1, 3, 1))
    asked = RecallRequest(sender="n1", receiver="n0", term=1, incarnation=7)
    answer = only(RecallResponse, driver.receive(asked))

    assert answer.mark is None or answer.mark.end < LogEnd(1, 5)
