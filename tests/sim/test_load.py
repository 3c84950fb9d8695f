"""No load of clients changes a term: runs in which work takes time, without any other fault."""

import pytest

from dledger_sim.mutants import hunt as mutants
from dledger_sim.runs.campaign import Task, Totals, run_task
from dledger_sim.runs.simulation import record, replay

EVENT_COUNT = 1500
FAST_SEED_COUNT = 15
SEED_COUNT = 250
PLANTED = (
    "heartbeats_are_counted_in_ticks",
    "clock_forgets_lost_ticks",
    "reads_have_no_slice",
    "one_reader_keeps_the_turn",
    "input_has_no_slice",
    "answer_has_any_number_of_entries",
    "json_of_any_brackets_is_parsed",
)
HUNTED_SEEDS = 60


def totals_of(seeds: range) -> Totals:
    totals = run_task(Task(seeds=seeds, event_count=EVENT_COUNT, covered=False, family="load"))
    assert not totals.failures
    assert totals.acknowledged_count > len(seeds)
    assert totals.fault_count > len(seeds), "a run without a flood proves nothing"
    return totals


def test_a_few_floods_change_no_term() -> None:
    counts = totals_of(range(FAST_SEED_COUNT)).load_counts

    assert counts["client_turns"] > 1000
    assert counts["served"] > 100


@pytest.mark.simulation
@pytest.mark.parametrize("chunk", range(2))
def test_no_flood_changes_a_term(chunk: int) -> None:
    first_seed = FAST_SEED_COUNT + chunk * SEED_COUNT
    totals_of(range(first_seed, first_seed + SEED_COUNT))


@pytest.mark.simulation
@pytest.mark.parametrize("name", PLANTED)
def test_floods_find_a_planted_bug(name: str) -> None:
    found = mutants.hunt_apart(name, HUNTED_SEEDS)

    assert found.seed is not None, f"no seed of {found.seeds_tried} found the bug"


def test_a_tape_repeats_a_flood() -> None:
    tape, violation = record(0, EVENT_COUNT, family="load")

    assert violation is None
    assert any(act[0] == "flood" for _, act in tape.acts)
    assert replay(tape).load_counts["served"] > 0
