"""The situations that a campaign must reach, listed by message, role, term, log and answer.

A situation is added to the list once a campaign of 400 seeds reaches it 80 times, so that fewer
seeds reach it reliably. A situation that is no longer reached is a gap in the faults, or a change
of the core whose author removes the line and explains why.
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
def test_a_campaign_reaches_every_listed_situation() -> None:
    seeds = range(20_000, 20_000 + SEED_COUNT)
    totals = run_task(Task(seeds=seeds, event_count=EVENT_COUNT, covered=True))
    missed = [cell for cell in reachable_cells() if not totals.coverage.counts[cell]]

    assert not totals.failures
    assert not missed


def test_the_list_names_each_situation_once() -> None:
    cells = reachable_cells()

    assert len(set(cells)) == len(cells) > 80
