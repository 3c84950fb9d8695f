"""Logs that are cut and replaced in a thread: the group goes on meanwhile, and breaks no rule."""

import pytest

from dledger_node.shell.loop import CoreLoop
from dledger_sim.runs.campaign import Task, run_task

EVENT_COUNT = 1500
FAST_SEED_COUNT = 40
SEED_COUNT = 100


def assert_sound(seeds: range) -> None:
    totals = run_task(Task(seeds=seeds, event_count=EVENT_COUNT, covered=False, family="cuts"))
    assert not totals.failures
    assert totals.acknowledged_count > len(seeds)


def test_a_few_slow_cuts_break_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    changed, count = CoreLoop.log_changed, 0

    def counted(loop: CoreLoop) -> None:
        nonlocal count
        count += 1
        changed(loop)

    monkeypatch.setattr(CoreLoop, "log_changed", counted)
    assert_sound(range(FAST_SEED_COUNT))
    assert count >= 5, "runs without slow cuts prove nothing"


@pytest.mark.simulation
@pytest.mark.parametrize("chunk", range(2))
def test_no_slow_cut_breaks_a_rule(chunk: int) -> None:
    first_seed = FAST_SEED_COUNT + chunk * SEED_COUNT
    assert_sound(range(first_seed, first_seed + SEED_COUNT))
