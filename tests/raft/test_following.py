"""The follower's side of replication: what it takes, what it confirms, what it never does."""

import pytest

from dledger_node.raft.messages import PushResponse, PushResult
from dledger_node.raft.ready import Truncate, WritePushed
from dledger_node.raft.refusals import RefusalCause
from dledger_sim.stage.driver import CoreDriver, append, compare, heartbeat, only


def test_a_push_is_written_and_confirmed_once_it_is_durable() -> None:
    driver = CoreDriver(terms=[1, 1])
    assert not driver.receive(append(3, (1, 1), 5, 2))
    assert driver.writes == [WritePushed(first_index=2, last_index=5, term=2, entries="bytes")]
    answer = only(PushResponse, driver.flush())

    assert (answer.result, answer.match_index) == (PushResult.SUCCESS, 5)


def test_one_flush_gives_one_answer_for_all_it_covers() -> None:
    driver = CoreDriver()
    driver.receive(append(1, (-1, -1), 3))
    driver.receive(append(1, (3, 1), 4))
    driver.receive(append(1, (4, 1), 9))

    assert only(PushResponse, driver.flush()).match_index == 9


def test_a_flush_of_a_part_confirms_that_part() -> None:
    driver = CoreDriver()
    driver.receive(append(1, (-1, -1), 9))
    driver.raft.persisted(4, 1)

    assert only(PushResponse, driver.work()).match_index == 4


def test_a_push_that_is_here_already_is_confirmed_at_once_and_not_written() -> None:
    driver = CoreDriver(terms=[1, 1, 1])
    answer = only(PushResponse, driver.receive(append(1, (0, 1), 2)))

    assert answer.match_index == 2
    assert not driver.writes


def test_only_the_missing_part_of_a_push_is_written() -> None:
    driver = CoreDriver(terms=[1, 1, 1])
    driver.receive(append(1, (0, 1), 5))

    assert driver.writes == [WritePushed(first_index=3, last_index=5, term=1, entries="bytes")]


def test_a_push_behind_a_gap_is_refused_with_the_own_end() -> None:
    driver = CoreDriver(terms=[1, 1])
    answer = only(PushResponse, driver.receive(append(3, (7, 2), 9)))

    assert answer.result is PushResult.INCONSISTENT_STATE
    assert (answer.ledger_end_index, answer.conflict_term) == (1, -1)
    assert not driver.writes


def test_a_push_behind_another_entry_is_refused_with_hints() -> None:
    driver = CoreDriver(terms=[1, 2, 2, 2, 4])
    answer = only(PushResponse, driver.receive(append(6, (3, 5), 9)))

    assert answer.result is PushResult.INCONSISTENT_STATE
    assert (answer.conflict_term, answer.conflict_index) == (2, 1)
    assert answer.probe is None


def test_entries_that_contradict_the_leader_are_replaced() -> None:
    driver = CoreDriver(terms=[1, 2, 2, 2])
    driver.receive(append(3, (0, 1), 2))

    assert driver.writes == [
        Truncate(first_index=1),
        WritePushed(first_index=1, last_index=2, term=3, entries="bytes"),
    ]
    assert driver.raft.durable_index == 0


def test_a_push_keeps_what_lies_behind_it() -> None:
    """A push that a later one overtook must not remove what the later one brought."""
    driver = CoreDriver()
    driver.receive(append(1, (-1, -1), 9))
    driver.receive(append(1, (-1, -1), 4))

    assert driver.raft.ledger_end_index == 9
    assert not any(isinstance(write, Truncate) for write in driver.writes)
    assert not driver.raft.contradiction
    assert not driver.raft.refusals


def test_a_push_keeps_a_tail_that_it_does_not_contradict() -> None:
    driver = CoreDriver(terms=[1] * 6)
    driver.receive(append(2, (0, 1), 2, 1))

    assert driver.raft.ledger_end_index == 5
    assert not driver.writes


def test_the_own_unverified_tail_is_neither_confirmed_nor_committed() -> None:
    driver = CoreDriver(terms=[1, 1, 2, 2, 2])
    answer = only(PushResponse, driver.receive(append(3, (0, 1), 1, 1, committed_index=9)))

    assert answer.match_index == 1
    assert driver.raft.committed_index == 1


def test_a_new_leader_verifies_the_log_anew() -> None:
    driver = CoreDriver()
    driver.receive(append(1, (-1, -1), 5))
    driver.flush()
    driver.receive(heartbeat(2, sender="n2", committed_index=5))

    assert driver.raft.committed_index == -1


def test_a_heartbeat_commits_what_is_verified() -> None:
    driver = CoreDriver()
    driver.receive(append(1, (-1, -1), 5))
    driver.flush()
    driver.receive(heartbeat(1, committed_index=3))

    assert driver.raft.committed_index == 3


def test_a_member_that_restarted_in_the_leaders_term_asks_to_be_compared() -> None:
    driver = CoreDriver(terms=[1] * 6, term=1)
    answer = only(PushResponse, driver.receive(heartbeat(1, committed_index=5)))

    assert (answer.result, answer.probe) == (PushResult.INCONSISTENT_STATE, None)
    assert driver.raft.committed_index == -1


def test_a_question_about_a_held_entry_is_confirmed_with_its_number() -> None:
    driver = CoreDriver(terms=[1, 1, 2, 2])
    answer = only(PushResponse, driver.receive(compare(3, 2, 2)))

    assert (answer.result, answer.match_index, answer.probe) == (PushResult.SUCCESS, 2, 7)


def test_a_question_confirms_only_what_is_durable() -> None:
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


def test_a_question_about_another_entry_is_answered_with_hints() -> None:
    driver = CoreDriver(terms=[1, 2, 2, 2])
    answer = only(PushResponse, driver.receive(compare(5, 3, 4)))

    assert answer.result is PushResult.INCONSISTENT_STATE
    assert (answer.conflict_term, answer.conflict_index, answer.probe) == (2, 1, 7)


@pytest.mark.parametrize("request_", [append(2, (-1, -1), 9), compare(2, 1, 1)])
def test_a_deposed_leader_changes_nothing(request_: object) -> None:
    driver = CoreDriver(terms=[1, 1], term=3)
    answer = only(PushResponse, driver.receive(request_))  # type: ignore[arg-type]

    assert (answer.result, answer.term) == (PushResult.EXPIRED_TERM, 3)
    assert not driver.writes
    assert driver.raft.leader_id is None


def test_committed_entries_are_never_replaced() -> None:
    driver = CoreDriver(terms=[1, 1, 2, 2, 2], committed_index=3)
    answer = only(PushResponse, driver.receive(append(5, (1, 1), 4)))

    assert answer.result is PushResult.INCONSISTENT_STATE
    assert not driver.writes
    assert driver.raft.refusals[RefusalCause.BELOW_COMMITTED] == 1
    assert "asked to replace entry 2" in driver.raft.contradiction


def test_a_leader_cannot_take_back_what_it_pushed() -> None:
    driver = CoreDriver()
    driver.receive(append(5, (-1, -1), 4, 2))
    driver.receive(append(5, (1, 2), 3, 5))

    assert driver.raft.ledger_end_index == 4
    assert driver.raft.refusals[RefusalCause.BELOW_COMMITTED] == 1


def test_a_member_that_was_asked_the_impossible_serves_again_in_the_next_term() -> None:
    driver = CoreDriver(terms=[1, 1, 2, 2, 2], committed_index=3)
    driver.receive(append(5, (1, 1), 4))
    assert driver.raft.contradiction
    driver.receive(heartbeat(6, sender="n2"))

    assert not driver.raft.contradiction


def test_a_push_cut_in_pieces_on_the_wire_is_the_same_push() -> None:
    driver = CoreDriver(terms=[1])
    driver.receive(append(2, (0, 1), 3))
    driver.receive(append(2, (3, 2), 8))

    assert only(PushResponse, driver.flush()).match_index == 8
