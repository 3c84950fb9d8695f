"""When a state counts as behind its log, and when as caught up."""

import pytest

from dledger_node.state_machine.catching_up import BEHIND_ENTRIES_MIN, CatchingUp


def test_a_state_counts_as_behind_before_the_first_turn() -> None:
    assert CatchingUp().is_behind


@pytest.mark.parametrize(("committed_index", "is_behind"), [(-1, False), (9, False), (10, True)])
def test_a_state_is_behind_from_its_start_if_anything_waits(
    committed_index: int, is_behind: bool
) -> None:
    state = CatchingUp()
    state.note_committed(committed_index, applied_index=9)

    assert state.is_behind is is_behind


def test_a_state_has_caught_up_with_the_batch_that_reaches_what_was_committed_as_it_began() -> None:
    state = CatchingUp()
    state.note_committed(100, applied_index=-1)

    state.note_batch(100, applied_index=50)
    assert state.is_behind
    state.note_committed(120, applied_index=50)
    state.note_batch(120, applied_index=120)
    assert not state.is_behind


def test_a_few_entries_that_wait_under_load_do_not_put_a_state_behind() -> None:
    state = CatchingUp()
    state.note_committed(-1, applied_index=-1)

    state.note_committed(BEHIND_ENTRIES_MIN - 1, applied_index=0)
    assert not state.is_behind
    state.note_committed(BEHIND_ENTRIES_MIN, applied_index=0)
    assert state.is_behind
