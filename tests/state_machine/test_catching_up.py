"""When a state counts as behind its log, and when as caught up."""

import pytest

from dledger_node.raft.yielding import ReportedCommit
from dledger_node.state_machine.catching_up import FEW_ENTRIES, CatchingUp

UNREPORTED = ReportedCommit(index=-1, is_settled=False)


def begun(committed_index: int, applied_index: int, end_index: int | None = None) -> CatchingUp:
    """Return what watches a member after its first turn; no leader has told it anything."""
    state = CatchingUp()
    end_index = committed_index if end_index is None else end_index
    state.note_turn(committed_index, applied_index, end_index, UNREPORTED)
    return state


def test_a_state_counts_as_behind_before_the_first_turn() -> None:
    assert CatchingUp().is_behind


@pytest.mark.parametrize(("committed_index", "is_behind"), [(-1, False), (9, False), (10, True)])
def test_a_state_is_behind_from_its_start_if_anything_waits(
    committed_index: int, is_behind: bool
) -> None:
    assert begun(committed_index, applied_index=9).is_behind is is_behind


def test_a_state_has_caught_up_with_the_batch_that_reaches_what_was_committed_as_it_began() -> None:
    state = begun(100, applied_index=-1)

    state.note_batch(100, applied_index=50)
    assert state.is_behind
    state.note_turn(120, 50, 120, UNREPORTED)
    state.note_batch(120, applied_index=120)
    assert not state.is_behind


@pytest.mark.parametrize(
    ("end_index", "is_behind"), [(9 + FEW_ENTRIES - 1, False), (9 + FEW_ENTRIES, True)]
)
def test_a_state_is_behind_if_its_log_has_many_entries_that_it_does_not_know_to_be_committed(
    end_index: int, is_behind: bool
) -> None:
    """The checkpoint may be older than the snapshot. Few entries are no reason to wait."""
    assert begun(9, applied_index=9, end_index=end_index).is_behind is is_behind


def test_a_state_is_behind_until_it_has_what_a_leader_told() -> None:
    reported = ReportedCommit(index=10 * FEW_ENTRIES, is_settled=False)
    state = begun(9, applied_index=9)

    state.note_turn(9, 9, 9, reported)
    assert state.is_behind
    state.note_turn(100, 9, 100, reported)
    state.note_batch(100, applied_index=100)
    assert state.is_behind
    state.note_turn(
        reported.index, 100, reported.index, ReportedCommit(reported.index, is_settled=True)
    )
    assert state.is_behind
    state.note_batch(reported.index, applied_index=reported.index)
    assert not state.is_behind


def test_a_tail_that_its_leader_truncates_is_not_waited_for() -> None:
    state = begun(9, applied_index=9, end_index=10 * FEW_ENTRIES)

    state.note_turn(10, 9, 10, ReportedCommit(index=10, is_settled=True))
    assert state.is_behind
    state.note_batch(10, applied_index=10)
    assert not state.is_behind


def test_a_state_that_falls_behind_in_service_does_not_count_as_behind() -> None:
    """All members may fall behind together, and then one of them must be elected soon."""
    state = begun(9, applied_index=9)
    state.note_turn(9, 9, 9, ReportedCommit(index=9, is_settled=True))

    state.note_turn(
        100 * FEW_ENTRIES, 9, 100 * FEW_ENTRIES, ReportedCommit(index=9, is_settled=True)
    )

    assert not state.is_behind
