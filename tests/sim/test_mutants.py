"""Planted bugs: every patch fits the node's source, and some bugs are hunted here.

`make sim-mutants` hunts all bugs and writes the table of docs/simulator.md.
"""

from pathlib import Path

import pytest

from dledger_sim.mutants import hunt as mutants
from dledger_sim.mutants.hunt import Found, Mutant

FOLDER = Path(__file__).parent / "mutants"
MUTANTS = mutants.load(FOLDER)
QUICK = (
    "vote_is_not_saved",
    "term_is_not_saved_without_a_vote",
    "everything_here_is_durable_for_a_new_leader",
    "whoever_starts_trusts_no_term",
    "follower_confirms_before_the_flush",
    "follower_confirms_its_own_tail",
    "follower_commits_all_that_is_verified",
    "contradicted_tail_stays",
    "overtaken_push_truncates",
    "question_is_answered_without_looking",
    "leader_counts_what_it_has_not_flushed",
    "window_is_not_kept",
    "entry_after_the_range_is_believed",
    "requests_are_answered_during_a_slow_cut",
)
SEED_COUNT = 100


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_patch_fits_exactly_one_place_of_its_module(mutant: Mutant) -> None:
    assert mutant.applied(mutants.source_of(mutant.module)).count(mutant.new)


def test_planted_bugs_have_unique_names() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 60


def test_a_patch_that_does_not_fit_raises_an_error() -> None:
    mutant = Mutant(name="stale", module="dledger_node.raft.core", rule="", old="x = 1", new="")

    with pytest.raises(ValueError, match="0 places"):
        mutant.applied("y = 1")
    with pytest.raises(ValueError, match="2 places"):
        mutant.applied("x = 1\nx = 1\n")


def test_a_bug_that_was_not_hunted_keeps_its_row_in_the_table() -> None:
    one, other, new = (Mutant(name=n, module="m", rule="", old="", new="") for n in "abc")
    before = mutants.table([one, other], {n: found(n, seed=4) for n in "ab"})

    after = mutants.table([one, other, new], {"b": found("b", seed=8)}, before)

    assert after.splitlines()[2:] == ["| a | `m` | 5 | a rule |", "| b | `m` | 9 | a rule |"]


def found(name: str, seed: int) -> Found:
    return Found(name=name, seed=seed, rule="a rule", seeds_tried=seed + 1, cpu_s=1.0)


def test_a_bug_cannot_be_planted_after_the_core_is_imported() -> None:
    import dledger_node.raft.core  # noqa: F401

    with pytest.raises(RuntimeError, match="in a new process"):
        mutants.plant(MUTANTS[0])


@pytest.mark.simulation
@pytest.mark.parametrize("name", QUICK)
def test_seeds_find_a_planted_bug(name: str) -> None:
    found = mutants.hunt_apart(name, SEED_COUNT)

    assert found.seed is not None, f"no seed of {found.seeds_tried} found the bug"
