"""The follower's side of replication: the entries that it takes, confirms and never replaces."""

import pytest

from dledger_node.raft.messages import PushResponse, PushResult
from dledger_node.raft.ready import Truncate, WritePushed
from dledger_node.raft.refusals import RefusalCause
from dledger_sim.stage.driver import CoreDriver, append, compare, heartbeat, only


def test_a_follower_writes_a_push_and_confirms_it_once_it_is_durable() -> None:
    driver = CoreDriver(terms=[1, 1])
    assert not driver.receive(append(3, (1, 1), 5, 2))
    assert driver.writes == [WritePushed(first_index=2, last_index=5, term=2, entries="bytes")]
    answer = only(PushResponse, driver.flush())

    assert (answer.result, answer.match_index) == (PushResult.SUCCESS, 5)


def test_a_follower_confirms_all_pushes_of_a_flush_in_one_response() -> None:
    driver = CoreDriver()
    driver.receive(append(1, (-1, -1), 3))
    driver.receive(append(1, (3, 1), 4))
    driver.receive(append(1, (4, 1), 9))

    assert only(PushResponse, driver.flush()).match_index == 9


def test_a_flush_of_part_of_a_push_confirms_that_part() -> None:
    driver = CoreDriver()
    driver.receive(append(1, (-1, -1), 9))
    driver.raft.persisted(4, 1)

    assert only(PushResponse, driver.work()).match_index == 4


def test_a_follower_confirms_a_repeated_push_without_writing_it() -> None:
    driver = CoreDriver(terms=[1, 1, 1])
    answer = only(PushResponse, driver.receive(append(1, (0, 1), 2)))

    assert answer.match_index == 2
    assert not driver.writes


def test_a_follower_writes_only_the_missing_part_of_a_push() -> None:
    driver = CoreDriver(terms=[1, 1, 1])
    driver.receive(append(1, (0, 1), 5))

    assert driver.writes == [WritePushed(first_index=3, last_index=5, term=1, entries="bytes")]


def test_a_follower_refuses_a_push_after_a_gap_and_reports_its_end() -> None:
    driver = CoreDriver(terms=[1, 1])
    answer = only(PushResponse, driver.receive(append(3, (7, 2), 9)))

    assert answer.result is PushResult.INCONSISTENT_STATE
    assert (answer.ledger_end_index, answer.conflict_term) == (1, -1)
    assert not driver.writes


def test_a_follower_refuses_a_push_after_a_different_entry_with_hints() -> None:
    driver = CoreDriver(terms=[1, 2, 2, 2, 4])
    answer = only(PushResponse, driver.receive(append(6, (3, 5), 9)))

    assert answer.result is PushResult.INCONSISTENT_STATE
    assert (answer.conflict_term, answer.conflict_index) == (2, 1)
    assert answer.probe is None


def test_a_follower_replaces_entries_that_conflict_with_its_leaders() -> None:
    driver = CoreDriver(terms=[1, 2, 2, 2])
    driver.receive(append(3, (0, 1), 2))

    assert driver.writes == [
        Truncate(first_index=1),
        WritePushed(first_index=1, last_index=2, term=3, entries="bytes"),
    ]
    assert driver.raft.durable_index == 0


def test_a_late_push_does_not_remove_the_entries_after_it() -> None:
    """A push that arrives after a later one must not remove the later one's entries."""
    driver = CoreDriver()
    driver.receive(append(1, (-1, -1), 9))
    driver.receive(append(1, (-1, -1), 4))

    assert driver.raft.ledger_end_index == 9
    assert not any(isinstance(write, Truncate) for write in driver.writes)
    assert not driver.raft.contradiction
    assert not driver.raft.refusals


def test_a_push_keeps_a_tail_that_does_not_conflict_with_it() -> None:
    driver = CoreDriver(terms=[1] * 6)
    driver.receive(append(2, (0, 1), 2, 1))

    assert driver.raft.ledger_end_index == 5
    assert not driver.writes


def test_a_follower_neither_confirms_nor_commits_its_unverified_tail() -> None:
    driver = CoreDriver(terms=[1, 1, 2, 2, 2])
    answer = only(PushResponse, driver.receive(append(3, (0, 1), 1, 1, committed_index=9)))

    assert answer.match_index == 1
    assert driver.raft.committed_index == 1


def test_a_follower_verifies_its_log_again_for_a_new_leader() -> None:
    driver = CoreDriver()
    driver.receive(append(1, (-1, -1), 5))
    driver.flush()
    driver.receive(heartbeat(2, sender="n2", committed_index=5))

    assert driver.raft.committed_index == -1


def test_a_heartbeat_commits_verified_entries() -> None:
    driver = CoreDriver()
    driver.receive(append(1, (-1, -1), 5))
    driver.flush()
    driver.receive(heartbeat(1, committed_index=3))

    assert driver.raft.committed_index == 3


def test_a_follower_that_restarts_in_its_leaders_term_asks_for_a_compare() -> None:
    driver = CoreDriver(terms=[1] * 6, term=1)
    answer = only(PushResponse, driver.receive(heartbeat(1, committed_index=5)))

    assert (answer.result, answer.probe) == (PushResult.INCONSISTENT_STATE, None)
    assert driver.raft.committed_index == -1


def test_a_follower_confirms_a_probe_for_an_entry_that_it_holds() -> None:
    driver = CoreDriver(terms=[1, 1, 2, 2])
    answer = only(PushResponse, driver.receive(compare(3, 2, 2)))

    assert (answer.result, answer.match_index, answer.probe) == (PushResult.SUCCESS, 2, 7)


def test_a_probe_confirms_only_durable_entries() -> None:
    driver = CoreDriver()
    driver.receive(append(1, (-1, -1), 5))
    driver.raft.persisted(2, 1)
    driver.work()
    answer = only(PushResponse, driver.receive(compare(1, 5, 1)))
    assert (answer.result, answer.match_index) == (PushResult.SUCCESS, 2)

    assert only(PushResponse, driver.flush()).match_index == 5


def test_every_member_holds_the_empty_prefix() -> None:
    answer = only(PushResponse, CoreDriver(terms=[1, 2]).receive(compare(3, -1, -1)))

    assert (answer.result, answer.match_index) == (PushResult.SUCCESS, -1)


def test_a_follower_denies_a_probe_for_a_different_entry_with_hints() -> None:
    driver = CoreDriver(terms=[1, 2, 2, 2])
    answer = only(PushResponse, driver.receive(compare(5, 3, 4)))

    assert answer.result is PushResult.INCONSISTENT_STATE
    assert (answer.conflict_term, answer.conflict_index, answer.probe) == (2, 1, 7)


@pytest.mark.parametrize("request_", [append(2, (-1, -1), 9), compare(2, 1, 1)])
def test_a_follower_refuses_requests_of_a_deposed_leader(request_: object) -> None:
    driver = CoreDriver(terms=[1, 1], term=3)
    answer = only(PushResponse, driver.receive(request_))  # type: ignore[arg-type]

    assert (answer.result, answer.term) == (PushResult.EXPIRED_TERM, 3)
    assert not driver.writes
    assert driver.raft.leader_id is None


def test_a_follower_never_replaces_committed_entries() -> None:
    driver = CoreDriver(terms=[1, 1, 2, 2, 2], committed_index=3)
    answer = only(PushResponse, driver.receive(append(5, (1, 1), 4)))

    assert answer.result is PushResult.INCONSISTENT_STATE
    assert not driver.writes
    assert driver.raft.refusals[RefusalCause.BELOW_COMMITTED] == 1
    assert "asked to replace entry 2" in driver.raft.contradiction


def test_a_follower_never_replaces_entries_that_its_leader_pushed() -> None:
    driver = CoreDriver()
    driver.receive(append(5, (-1, -1), 4, 2))
    driver.receive(append(5, (1, 2), 3, 5))

    assert driver.raft.ledger_end_index == 4
    assert driver.raft.refusals[RefusalCause.BELOW_COMMITTED] == 1


def test_a_member_with_a_contradiction_serves_again_in_the_next_term() -> None:
    driver = CoreDriver(terms=[1, 1, 2, 2, 2], committed_index=3)
    driver.receive(append(5, (1, 1), 4))
    assert driver.raft.contradiction
    driver.receive(heartbeat(6, sender="n2"))

    assert not driver.raft.contradiction


def test_a_push_split_on_the_wire_equals_the_whole_push() -> None:
    driver = CoreDriver(terms=[1])
    driver.receive(append(2, (0, 1), 3))
    driver.receive(append(2, (3, 2), 8))

    assert only(PushResponse, driver.flush()).match_index == 8
