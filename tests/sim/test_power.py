"""A host that loses power under AsyncFlush costs nothing acknowledged, even if its leader dies."""

import pytest

from dledger_sim.mutants import hunt as mutants
from dledger_sim.runs.campaign import Task, run_task
from dledger_sim.runs.simulation import record

EVENT_COUNT = 1500
FAST_SEED_COUNT = 10
SEED_COUNT = 100
HUNTED_SEEDS = 400


def assert_sound(seeds: range) -> None:
    totals = run_task(Task(seeds=seeds, event_count=EVENT_COUNT, covered=False, family="power"))
    assert not totals.failures
    assert totals.acknowledged_count > len(seeds)


def test_a_few_power_losses_lose_nothing() -> None:
    assert_sound(range(FAST_SEED_COUNT))


def test_hosts_lose_power_in_these_seeds() -> None:
    tapes = [record(seed, EVENT_COUNT, family="power")[0] for seed in range(FAST_SEED_COUNT)]

    counts = [len(act[1]) for tape in tapes for _, act in tape.acts if act[0] == "lose_power"]
    assert min(counts) == 1
    assert max(counts) > 1, "several at once, too"


def test_entries_that_were_all_truncated_do_not_come_back_with_a_power_loss() -> None:
    """In this seed a leader replaces a follower's log from entry 0 on, before the power fails."""
    assert_sound(range(200_482, 200_483))


@pytest.mark.simulation
@pytest.mark.parametrize("chunk", range(2))
def test_no_power_loss_of_one_host_loses_anything(chunk: int) -> None:
    first_seed = FAST_SEED_COUNT + chunk * SEED_COUNT
    assert_sound(range(first_seed, first_seed + SEED_COUNT))


@pytest.mark.simulation
@pytest.mark.parametrize(
    "name",
    [
        "log_that_a_power_loss_shortened_is_believed",
        "member_that_lost_its_end_votes_by_its_disk",
        "member_that_lost_its_end_stands_for_election",
        "lost_end_is_sought_by_the_present_flush_mode",
    ],
)
def test_power_losses_find_a_planted_bug(name: str) -> None:
    found = mutants.hunt_apart(name, HUNTED_SEEDS)

    assert found.seed is not None, f"no seed of {found.seeds_tried} found the bug"
