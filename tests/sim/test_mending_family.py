"""Entries rot on several members, each sound on another one, and the members mend them."""

import pytest

from dledger_sim.runs.campaign import Task, run_task

EVENT_COUNT = 1500
FAST_SEED_COUNT = 20
SEED_COUNT = 100
DEAD_ENDS = (60, 302, 390, 417, 533)
"""Most members were out of service with damage, and the sound one, which has no leader then, did
not know that the entries which they lacked are committed."""


def run(seeds: list[int] | range) -> int:
    """Run seeds of the family; return how many entries were mended."""
    totals = run_task(Task(seeds=seeds, event_count=EVENT_COUNT, covered=False, family="mending"))
    assert not totals.failures
    return totals.rot_counts["mended_entries"]


def test_a_few_disjoint_damages_are_mended() -> None:
    assert run(range(FAST_SEED_COUNT)) >= 20, "runs in which nothing is mended prove nothing"


@pytest.mark.parametrize("seed", DEAD_ENDS)
def test_a_majority_with_damage_mends_from_a_peer_that_has_no_leader(seed: int) -> None:
    assert run([seed]) > 0


@pytest.mark.simulation
@pytest.mark.parametrize("chunk", range(2))
def test_all_disjoint_damages_are_mended(chunk: int) -> None:
    first_seed = FAST_SEED_COUNT + chunk * SEED_COUNT
    run(range(first_seed, first_seed + SEED_COUNT))
