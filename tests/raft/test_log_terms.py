"""Term runs against a plain list of terms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_node.raft.invariants import InvariantError
from dledger_node.raft.log_terms import LogTerms
from dledger_sim.stage.driver import log_of

TERMS = st.lists(st.integers(0, 6), max_size=20).map(sorted)
CHANGES = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 5)), max_size=12)


def check_against(log: LogTerms, terms: list[int]) -> None:
    assert log.end_index == len(terms) - 1
    assert log.end_term == (terms[-1] if terms else -1)
    assert [log.term_at(index) for index in range(len(terms))] == terms
    for index, term in enumerate(terms):
        assert log.first_index_of_term_at(index) == terms.index(term)
        assert log.last_index_of_term_at(index) == len(terms) - 1 - terms[::-1].index(term)
        assert log.last_index_of_term(term) == log.last_index_of_term_at(index)


@given(TERMS)
def test_every_lookup_agrees_with_a_list_of_terms(terms: list[int]) -> None:
    check_against(log_of(terms), terms)


@given(CHANGES)
def test_appends_and_truncations_keep_the_log_equal_to_a_list(
    changes: list[tuple[int, int, int]],
) -> None:
    log, terms = LogTerms(), list[int]()
    for count, term_step, cut in changes:
        term = (terms[-1] if terms else 0) + term_step
        log.append(log.end_index + count, term)
        terms += [term] * count
        if cut and cut <= len(terms):
            log.truncate(len(terms) - cut)
            del terms[len(terms) - cut :]
        check_against(log, terms)


@given(TERMS, st.integers(-3, 25), st.integers(-3, 8))
def test_holds_accepts_any_numbers(terms: list[int], index: int, term: int) -> None:
    held = index == term == -1 or (0 <= index < len(terms) and terms[index] == term)

    assert log_of(terms).holds(index, term) == held


def test_a_recovered_log_is_taken_over_run_by_run() -> None:
    log = LogTerms(10, [(10, 3), (14, 5)], 20)

    assert (log.begin_index, log.end_index, log.end_term) == (10, 20, 5)
    assert [log.term_at(index) for index in (10, 13, 14, 20)] == [3, 3, 5, 5]


def test_a_log_without_its_beginning_does_not_hold_the_empty_prefix() -> None:
    assert not LogTerms(10, [(10, 3)], 12).holds(-1, -1)


@pytest.mark.parametrize(
    ("begin_index", "runs", "end_index"),
    [
        pytest.param(0, [(1, 1)], 3, id="a first run that begins late"),
        pytest.param(0, [(0, 2), (3, 1)], 5, id="terms that fall"),
        pytest.param(0, [(0, 1), (3, 1)], 5, id="one term twice"),
        pytest.param(0, [(0, 1), (3, 2)], 2, id="a run behind the end"),
        pytest.param(0, [], 5, id="entries without a term"),
        pytest.param(7, [], -1, id="an end before the beginning"),
    ],
)
def test_runs_that_do_not_form_a_log_raise_an_error(
    begin_index: int, runs: list[tuple[int, int]], end_index: int
) -> None:
    with pytest.raises(InvariantError):
        LogTerms(begin_index, runs, end_index)


@pytest.mark.parametrize("first_index", [-1, 4])
def test_truncating_at_an_entry_outside_the_log_raises_an_error(first_index: int) -> None:
    with pytest.raises(InvariantError):
        log_of([1, 1, 2, 2]).truncate(first_index)


def test_appending_a_lower_term_raises_an_error() -> None:
    with pytest.raises(InvariantError):
        log_of([1, 2]).append(2, 1)


@pytest.mark.parametrize("index", [-2, 3])
def test_the_term_of_an_entry_outside_the_log_raises_an_error(index: int) -> None:
    with pytest.raises(InvariantError):
        log_of([1, 1, 2]).term_at(index)


@given(TERMS.filter(bool), st.data())
def test_a_log_without_its_front_still_answers_for_the_rest(
    terms: list[int], data: st.DataObject
) -> None:
    log = log_of(terms)
    begin_index = data.draw(st.integers(0, len(terms) - 1))

    log.remove_before(begin_index)

    assert (log.begin_index, log.end_index, log.end_term) == (
        begin_index,
        len(terms) - 1,
        terms[-1],
    )
    assert [log.term_at(i) for i in range(begin_index, len(terms))] == terms[begin_index:]
    assert log.first_index_of_term_at(begin_index) == begin_index
    for index in range(-1, begin_index):
        assert not log.holds(index, terms[index] if index >= 0 else -1) or begin_index == 0


@pytest.mark.parametrize("first_index", [-1, 3])
def test_only_an_entry_of_the_log_can_become_its_first(first_index: int) -> None:
    with pytest.raises(InvariantError):
        log_of([1, 1, 2]).remove_before(first_index)
