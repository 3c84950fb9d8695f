"""What a campaign must meet: situations that a list names, by message, role, term, log, answer.

A cell is added to the list once a campaign of 400 seeds meets it 80 times, so that fewer seeds
meet it for sure. One that is no longer met is a hole in the faults, or a change of the core that
its author has to explain by taking the line out.
"""

from pathlib import Path

import pytest

from dledger_sim.runs.campaign import Task, run_task
from dledger_sim.runs.coverage import Cell

REACHABLE = Path(__file__).parent / "reachable_cells.txt"
SEED_COUNT = 250
EVENT_COUNT = 1500


def reachable_cells() -> list[Cell]:
    return [Cell(*line.split(maxsplit=4)) for line in REACHABLE.read_text().splitlines()]


@pytest.mark.simulation
def test_a_campaign_meets_every_situation_that_is_named_as_reachable() -> None:
    seeds = range(20_000, 20_000 + SEED_COUNT)
    totals = run_task(Task(seeds=seeds, event_count=EVENT_COUNT, covered=True))
    missed = [cell for cell in reachable_cells() if not totals.coverage.counts[cell]]

    assert not totals.failures
    assert not missed


def test_the_list_of_situations_names_each_once() -> None:
    cells = reachable_cells()

    assert len(set(cells)) == len(cells) > 80
