"""Members that apply their logs for long after a start: the others are elected first."""

import pytest

from dledger_sim.mutants import hunt as mutants
from dledger_sim.runs.campaign import Task, Totals, run_task

EVENT_COUNT = 1500
FAST_SEED_COUNT = 60
SEED_COUNT = 500
HUNTED_SEEDS = 400
PLANTED = tuple(mutant.name for mutant in mutants.load() if mutant.family == "replays")


def totals_of(seeds: range) -> Totals:
    totals = run_task(Task(seeds=seeds, event_count=EVENT_COUNT, covered=False, family="replays"))
    assert not totals.failures
    return totals


def test_a_few_groups_with_slow_states_break_no_rule() -> None:
    counts = totals_of(range(FAST_SEED_COUNT)).replay_counts

    assert counts["elected_ready"] > 10, "runs in which nobody is behind prove nothing"
    assert counts["elected_behind"] > 0, "and a group whose members are all behind has a leader"


@pytest.mark.simulation
@pytest.mark.parametrize("chunk", range(2))
def test_no_group_with_slow_states_breaks_a_rule(chunk: int) -> None:
    first_seed = FAST_SEED_COUNT + chunk * SEED_COUNT
    totals_of(range(first_seed, first_seed + SEED_COUNT))


@pytest.mark.parametrize("name", PLANTED)
def test_a_few_seeds_find_a_bug_of_members_that_are_behind(name: str) -> None:
    found = mutants.hunt_apart(name, HUNTED_SEEDS)

    assert found.seed is not None, f"no seed of {found.seeds_tried} found the bug"
