"""Peers that cannot be led up to the leader's first entry: they begin anew with it."""

from collections.abc import Sequence

import pytest

from dledger_node.raft.log_terms import LogTerms
from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    InstallSnapshotRequest,
    Message,
    PushResponse,
    PushResult,
)
from dledger_node.raft.ready import WriteSnapshot
from dledger_node.raft.refusals import RefusalCause
from dledger_sim.stage.driver import (
    HEARTBEAT_TICKS,
    CoreDriver,
    append,
    compare,
    heartbeat,
    install,
    of_type,
    only,
)


def leader_from_entry_eight() -> CoreDriver:
    """Entries 8 to 10 are there, and committed; n1 holds them, and n2 has answered nothing."""
    driver = CoreDriver(terms=[1] * 10)
    driver.become_leader()
    driver.agree("n1")
    driver.receive(driver.success_from("n1", 10))
    driver.raft.remove_before(8)
    return driver


def to_n2(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.receiver == "n2"]


def deny_until_sent(driver: CoreDriver) -> list[Message]:
    """Let n2, which is blank, deny every question; returns what follows the last one."""
    said = driver.questions_to("n2")
    while questions := of_type(CompareRequest, to_n2(said)):
        said = driver.receive(driver.denial_from("n2", -1, probe=questions[0].probe))
    return said


# -- the leader ------------------------------------------------------------------------------------


def test_a_peer_that_denies_the_first_entry_is_sent_it() -> None:
    sent = only(InstallSnapshotRequest, deny_until_sent(leader_from_entry_eight()))

    assert (sent.receiver, sent.first_index, sent.last_index) == ("n2", 8, 9)
    assert (sent.entries_term, sent.committed_index) == (1, 10)


def test_it_is_sent_again_in_every_heartbeat_round_and_no_more_often() -> None:
    driver = leader_from_entry_eight()
    deny_until_sent(driver)
    said = [driver.tick() for _ in range(2 * HEARTBEAT_TICKS)]

    assert sum(len(of_type(InstallSnapshotRequest, one)) for one in said) == 2


def test_once_the_peer_has_it_the_rest_is_pushed() -> None:
    driver = leader_from_entry_eight()
    deny_until_sent(driver)
    pushed = only(AppendRequest, driver.receive(driver.success_from("n2", 9)))

    assert (pushed.receiver, pushed.first_index, pushed.last_index) == ("n2", 10, 10)


def test_a_log_whose_first_entry_is_not_committed_is_sent_to_nobody() -> None:
    """As far as it knows, which just has started: the checkpoint was of a moment before."""
    driver = CoreDriver(terms=[1] * 10, begin_index=9, committed_index=8)
    driver.become_leader()

    assert not of_type(InstallSnapshotRequest, deny_until_sent(driver))


def test_what_such_a_peer_had_confirmed_counts_no_more() -> None:
    driver = leader_from_entry_eight()
    driver.receive(driver.success_from("n2", 10))
    driver.raft.link_lost("n2")
    deny_until_sent(driver)

    assert driver.raft.match_indexes()["n2"] == -1


# -- the follower ----------------------------------------------------------------------------------


def test_its_log_begins_anew_and_is_confirmed_once_it_is_durable() -> None:
    driver = CoreDriver(terms=[1, 1], committed_index=0)
    said = driver.receive(install(3, 8, 9, 2))
    assert not of_type(PushResponse, said)
    assert driver.writes == [
        WriteSnapshot(first_index=8, last_index=9, term=2, entries="bytes"),
    ]
    answer = only(PushResponse, driver.flush())

    assert (answer.result, answer.match_index) == (PushResult.SUCCESS, 9)
    raft = driver.raft
    assert (raft.ledger_begin_index, raft.ledger_end_index, raft.committed_index) == (8, 9, 9)


def test_entries_follow_behind_it() -> None:
    driver = CoreDriver()
    driver.receive(install(3, 8, 9, 2))
    driver.receive(append(3, (9, 2), 12, 3, committed_index=11))

    assert only(PushResponse, driver.flush()).match_index == 12
    assert driver.raft.committed_index == 11


def test_it_can_begin_anew_as_often_as_it_must() -> None:
    """DLedger 0.4 fails at the second time in one process, and each later one."""
    driver = CoreDriver()
    for first_index in (8, 40, 90):
        driver.receive(install(3, first_index, first_index + 1))
        answer = only(PushResponse, driver.flush())

        assert (answer.result, answer.match_index) == (PushResult.SUCCESS, first_index + 1)
        raft = driver.raft
        assert (raft.ledger_begin_index, raft.committed_index) == (first_index, first_index + 1)


def test_asked_twice_it_begins_anew_once() -> None:
    driver = CoreDriver()
    driver.receive(install(3, 8, 9))
    driver.receive(append(3, (9, 3), 12, 3))
    driver.flush()
    again = driver.receive(install(3, 8, 9))

    assert only(PushResponse, again).match_index == 12
    assert len([one for one in driver.writes if isinstance(one, WriteSnapshot)]) == 1


def test_a_tail_that_contradicts_what_is_committed_goes_too() -> None:
    driver = CoreDriver(terms=[1] * 5 + [2] * 10, committed_index=4)
    driver.receive(install(4, 8, 9, 3))

    assert (driver.raft.ledger_begin_index, driver.raft.ledger_end_index) == (8, 9)
    assert driver.raft.durable_index == -1, "a crash may leave nothing of either log"


def test_committed_entries_are_never_replaced() -> None:
    driver = CoreDriver(terms=[1] * 12, committed_index=8)
    said = driver.receive(install(3, 8, 9, 2))

    assert not said
    assert not driver.writes
    assert driver.raft.refusals[RefusalCause.BELOW_COMMITTED] == 1
    assert "asked to replace entry 8" in driver.raft.contradiction


def test_a_leader_that_contradicts_what_it_had_pushed_is_not_believed() -> None:
    """Found by the fuzzer."""
    driver = CoreDriver()
    driver.receive(append(6, (-1, -1), 5, 4))
    said = driver.receive(install(6, 2, 3, 6))

    assert not of_type(PushResponse, said)
    assert driver.raft.ledger_end_index == 5
    assert "asked to replace entry 2" in driver.raft.contradiction


def test_what_was_removed_here_meanwhile_is_no_contradiction() -> None:
    driver = CoreDriver(terms=[1] * 12, committed_index=11)
    driver.raft.remove_before(10)
    said = driver.receive(install(3, 8, 9, 1))

    assert only(PushResponse, said).match_index == 11
    assert not driver.raft.contradiction


@pytest.mark.parametrize("index", [-1, 5, 7])
def test_a_question_about_what_was_removed_is_answered_by_what_is_here(index: int) -> None:
    """It was committed. A leader that was told less than this member has would go back to its own
    first entry, and ask about that for ever.
    """
    driver = CoreDriver(terms=[1] * 10, committed_index=9)
    driver.raft.remove_before(8)
    answer = only(PushResponse, driver.receive(compare(2, index, 1 if index >= 0 else -1)))

    assert (answer.result, answer.match_index) == (PushResult.SUCCESS, 9)


def test_a_deposed_leader_replaces_nothing() -> None:
    driver = CoreDriver(term=5)

    assert only(PushResponse, driver.receive(install(3, 8, 9))).result is PushResult.EXPIRED_TERM
    assert not driver.writes


def test_a_member_that_joins_can_begin_so() -> None:
    driver = CoreDriver(joining=True)
    assert not driver.receive(install(3, 8, 9))
    assert not driver.writes


def test_its_questions_are_answered_as_before() -> None:
    driver = CoreDriver()
    driver.receive(install(3, 8, 9))
    driver.flush()
    held = only(PushResponse, driver.receive(compare(3, 9, 3)))
    lacking = only(PushResponse, driver.receive(compare(3, 10, 3)))

    assert (held.result, lacking.result) == (PushResult.SUCCESS, PushResult.INCONSISTENT_STATE)
    assert not of_type(PushResponse, driver.receive(heartbeat(3, committed_index=9)))


@pytest.mark.parametrize(
    ("first_index", "last_index", "committed_index"), [(0, 3, 3), (4, 3, 9), (4, 6, 3)]
)
def test_a_log_that_cannot_be_cannot_be_told(
    first_index: int, last_index: int, committed_index: int
) -> None:
    with pytest.raises(ValueError, match="a log cannot begin with"):
        InstallSnapshotRequest(
            sender="n1", receiver="n0", term=3, first_index=first_index, last_index=last_index,
            entries_term=3, committed_index=committed_index,
        )  # fmt: skip


def test_a_log_can_be_restarted_at_any_index() -> None:
    log = LogTerms(0, [(0, 1), (4, 2)], 9)
    log.reset(20)
    assert (log.begin_index, log.end_index, log.end_term) == (20, 19, -1)
    log.append(22, 5)

    assert log.holds(20, 5)
    assert not log.holds(19, 2)
