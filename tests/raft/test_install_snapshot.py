"""Installs: a peer that lacks the leader's first entry replaces its log by the leader's."""

import dataclasses
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
    """Return a leader with entries 8 to 10, committed; n1 holds them, n2 has not answered."""
    driver = CoreDriver(terms=[1] * 10)
    driver.become_leader()
    driver.agree("n1")
    driver.receive(driver.success_from("n1", 10))
    driver.raft.remove_before(8)
    return driver


def to_n2(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.receiver == "n2"]


def deny_until_sent(driver: CoreDriver) -> list[Message]:
    """Let n2, which is blank, deny every probe; return the messages after the last denial."""
    sent = driver.questions_to("n2")
    while questions := of_type(CompareRequest, to_n2(sent)):
        sent = driver.receive(driver.denial_from("n2", -1, probe=questions[0].probe))
    return sent


# -- the leader ------------------------------------------------------------------------------------


def test_a_leader_sends_its_first_entries_to_a_peer_that_lacks_the_first() -> None:
    sent = only(InstallSnapshotRequest, deny_until_sent(leader_from_entry_eight()))

    assert (sent.receiver, sent.first_index, sent.last_index) == ("n2", 8, 9)
    assert (sent.entries_term, sent.committed_index) == (1, 10)


def test_a_leader_repeats_the_install_once_per_heartbeat_round() -> None:
    driver = leader_from_entry_eight()
    deny_until_sent(driver)
    sent = [driver.tick() for _ in range(2 * HEARTBEAT_TICKS)]

    assert sum(len(of_type(InstallSnapshotRequest, one)) for one in sent) == 2


def test_a_leader_pushes_the_rest_after_the_install_is_confirmed() -> None:
    driver = leader_from_entry_eight()
    deny_until_sent(driver)
    pushed = only(AppendRequest, driver.receive(driver.success_from("n2", 9)))

    assert (pushed.receiver, pushed.first_index, pushed.last_index) == ("n2", 10, 10)


def test_a_leader_sends_no_install_while_its_first_entry_is_not_committed() -> None:
    """The leader has just started, with a checkpoint that was older than its log."""
    driver = CoreDriver(terms=[1] * 10, begin_index=9, committed_index=8)
    driver.become_leader()

    assert not of_type(InstallSnapshotRequest, deny_until_sent(driver))


def test_a_leader_forgets_what_a_peer_confirmed_before_an_install() -> None:
    driver = leader_from_entry_eight()
    driver.receive(driver.success_from("n2", 10))
    driver.raft.link_lost("n2")
    deny_until_sent(driver)

    assert driver.raft.match_indexes()["n2"] == -1


# -- the follower ----------------------------------------------------------------------------------


def test_a_follower_replaces_its_log_and_confirms_once_it_is_durable() -> None:
    driver = CoreDriver(terms=[1, 1], committed_index=0)
    sent = driver.receive(install(3, 8, 9, 2))
    assert not of_type(PushResponse, sent)
    assert driver.writes == [
        WriteSnapshot(first_index=8, last_index=9, term=2, entries="bytes"),
    ]
    answer = only(PushResponse, driver.flush())

    assert (answer.result, answer.match_index) == (PushResult.SUCCESS, 9)
    raft = driver.raft
    assert (raft.ledger_begin_index, raft.ledger_end_index, raft.committed_index) == (8, 9, 9)


def test_a_follower_takes_pushes_after_an_install() -> None:
    driver = CoreDriver()
    driver.receive(install(3, 8, 9, 2))
    driver.receive(append(3, (9, 2), 12, 3, committed_index=11))

    assert only(PushResponse, driver.flush()).match_index == 12
    assert driver.raft.committed_index == 11


def test_a_follower_can_replace_its_log_repeatedly() -> None:
    """DLedger 0.4 fails at every install after the first one in a process."""
    driver = CoreDriver()
    for first_index in (8, 40, 90):
        driver.receive(install(3, first_index, first_index + 1))
        answer = only(PushResponse, driver.flush())

        assert (answer.result, answer.match_index) == (PushResult.SUCCESS, first_index + 1)
        raft = driver.raft
        assert (raft.ledger_begin_index, raft.committed_index) == (first_index, first_index + 1)


def test_a_repeated_install_replaces_the_log_once() -> None:
    driver = CoreDriver()
    driver.receive(install(3, 8, 9))
    driver.receive(append(3, (9, 3), 12, 3))
    driver.flush()
    again = driver.receive(install(3, 8, 9))

    assert only(PushResponse, again).match_index == 12
    assert len([one for one in driver.writes if isinstance(one, WriteSnapshot)]) == 1


def test_an_install_removes_a_tail_that_conflicts_with_committed_entries() -> None:
    driver = CoreDriver(terms=[1] * 5 + [2] * 10, committed_index=4)
    driver.receive(install(4, 8, 9, 3))

    assert (driver.raft.ledger_begin_index, driver.raft.ledger_end_index) == (8, 9)
    assert driver.raft.durable_index == -1, "a crash may lose both logs"


def test_an_install_never_replaces_committed_entries() -> None:
    driver = CoreDriver(terms=[1] * 12, committed_index=8)
    sent = driver.receive(install(3, 8, 9, 2))

    assert not sent
    assert not driver.writes
    assert driver.raft.refusals[RefusalCause.BELOW_COMMITTED] == 1
    assert "asked to replace entry 8" in driver.raft.contradiction


def test_an_install_never_replaces_entries_that_its_leader_pushed() -> None:
    """Found by the fuzzer."""
    driver = CoreDriver()
    driver.receive(append(6, (-1, -1), 5, 4))
    sent = driver.receive(install(6, 2, 3, 6))

    assert not of_type(PushResponse, sent)
    assert driver.raft.ledger_end_index == 5
    assert "asked to replace entry 2" in driver.raft.contradiction


def test_an_install_of_an_entry_removed_here_is_not_a_contradiction() -> None:
    driver = CoreDriver(terms=[1] * 12, committed_index=11)
    driver.raft.remove_before(10)
    sent = driver.receive(dataclasses.replace(install(3, 8, 9, 1), committed_index=11))

    assert only(PushResponse, sent).match_index == 10
    assert not driver.raft.contradiction


@pytest.mark.parametrize("index", [-1, 5, 7])
def test_a_follower_answers_a_probe_for_a_removed_entry_by_its_first_entry(index: int) -> None:
    """It was committed. A leader that was told less than this member has would go back to its own
    first entry, and ask about that for ever.
    """
    driver = CoreDriver(terms=[1] * 10, committed_index=9)
    driver.raft.remove_before(8)
    term = 1 if index >= 0 else -1
    told_less = only(PushResponse, driver.receive(compare(2, index, term)))
    told_all = only(PushResponse, driver.receive(compare(2, index, term, committed_index=9)))

    assert (told_less.result, told_less.match_index) == (PushResult.SUCCESS, -1)
    assert (told_all.result, told_all.match_index) == (PushResult.SUCCESS, 8)


def test_a_follower_refuses_an_install_of_a_deposed_leader() -> None:
    driver = CoreDriver(term=5)

    assert only(PushResponse, driver.receive(install(3, 8, 9))).result is PushResult.EXPIRED_TERM
    assert not driver.writes


def test_a_joining_member_takes_an_install() -> None:
    driver = CoreDriver(joining=True)
    assert not driver.receive(install(3, 8, 9))
    assert not driver.writes


def test_a_follower_answers_probes_after_an_install() -> None:
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
def test_an_install_request_with_an_impossible_log_raises_an_error(
    first_index: int, last_index: int, committed_index: int
) -> None:
    with pytest.raises(ValueError, match="a log cannot begin with"):
        InstallSnapshotRequest(
            sender="n1", receiver="n0", term=3, first_index=first_index, last_index=last_index,
            entries_term=3, committed_index=committed_index,
        )  # fmt: skip


def test_log_terms_can_be_reset_to_any_index() -> None:
    log = LogTerms(0, [(0, 1), (4, 2)], 9)
    log.reset(20)
    assert (log.begin_index, log.end_index, log.end_term) == (20, 19, -1)
    log.append(22, 5)

    assert log.holds(20, 5)
    assert not log.holds(19, 2)
