"""In no order of a store's threads is a sound log lost or refused, or a damaged one accepted.

See `dledger_schedules`. To run more: `python -m dledger_schedules --count 100000`.
"""

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from dledger_schedules import hunt
from dledger_schedules.__main__ import run_many
from dledger_schedules.disk import Disk
from dledger_schedules.points import Points
from dledger_schedules.scheduler import DeadlockError, ScheduledLock, Scheduler
from dledger_schedules.strategies import Walk
from dledger_sim.mutants.hunt import Mutant, source_of

MUTANTS = hunt.mutants()
COUNT = 300
QUICK = {
    "checkpoint_is_lowered_after_the_files_are_cut": 300,
    "flush_leaves_the_name_of_a_new_segment": 200,
    "flush_of_a_log_that_was_cut_counts": 100,
    "replacement_takes_no_lock": 200,
    "segment_is_looked_up_in_two_lists": 2000,
}
"""Planted bugs that few schedules find, and how many may be needed."""


@pytest.mark.storefaults
@pytest.mark.sampled(1)
@pytest.mark.parametrize("first_seed", [1, 5001])
def test_no_schedule_breaks_a_promise(memory_path: Path, first_seed: int) -> None:
    tally = run_many(memory_path, first_seed, COUNT)

    assert not tally.violations
    assert tally.details["points"] > 100 * COUNT
    assert tally.details["crashes"] > COUNT // 2
    assert tally.details["damaged"] > COUNT // 10


@pytest.mark.storefaults
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_found(name: str) -> None:
    needed, _ = hunt.hunt_apart(name, QUICK[name])

    assert needed is not None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_patch_fits_exactly_one_place_of_its_module(mutant: Mutant) -> None:
    assert mutant.applied(source_of(mutant.module)) != source_of(mutant.module)


def test_two_runs_of_a_seed_are_the_same(
    memory_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def trace_of(top: Path) -> list[str]:
        run_many(top, 7, 1, trace=True)
        return capsys.readouterr().out.replace(str(top), "").splitlines()

    first = trace_of(memory_path / "first")

    assert len(first) > 100
    assert trace_of(memory_path / "second") == first


def test_one_thread_runs_at_a_time_and_every_thread_gets_its_turn() -> None:
    scheduler, running, order = Scheduler(), set[str](), list[str]()

    def work(name: str) -> None:
        for _ in range(20):
            assert not running
            running.add(name)
            order.append(name)
            running.remove(name)
            scheduler.point("a step")

    def first() -> None:
        tasks = [scheduler.spawn(name, lambda name=name: work(name)) for name in "ab"]
        for task in tasks:
            scheduler.join(task)
            assert task.error is None

    scheduler.run(first, Walk(random.Random(1)), ignore)

    assert sorted(order) == ["a"] * 20 + ["b"] * 20
    assert order != sorted(order)


def test_a_deadlock_is_reported_and_the_scheduler_can_go_on() -> None:
    scheduler = Scheduler()
    locks = ScheduledLock(scheduler), ScheduledLock(scheduler)

    def take(one: ScheduledLock, other: ScheduledLock) -> None:
        with one, other:
            pass

    def first() -> None:
        tasks = [
            scheduler.spawn("a", lambda: take(*locks)),
            scheduler.spawn("b", lambda: take(*reversed(locks))),
        ]
        for task in tasks:
            scheduler.join(task)

    def any_seed_deadlocks() -> None:
        for seed in range(100):
            scheduler.run(first, Walk(random.Random(seed)), ignore)

    with pytest.raises(DeadlockError, match="no thread can go on"):
        any_seed_deadlocks()

    done: list[str] = []
    scheduler.run(lambda: done.append("again"), Walk(random.Random(1)), ignore)
    assert done == ["again"]


def test_an_error_of_the_first_thread_ends_the_schedule() -> None:
    scheduler = Scheduler()
    lock = ScheduledLock(scheduler)

    def first() -> None:
        with lock:
            scheduler.spawn("waits", lock.acquire)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        scheduler.run(first, Walk(random.Random(1)), ignore)


@pytest.mark.parametrize(
    ("module", "path", "is_traced"),
    [
        ("dledger_node.store.segments.segment_list", "a_planted_bug.py", True),
        ("dledger_node.store.segments.segment_list", "<string>", False),
        ("dledger_node.store.log.recovery", "recovery.py", False),
        ("dledger_node.volume.scrub", "scrub.py", False),
    ],
)
def test_the_lines_of_a_module_are_points_also_if_a_bug_is_planted_in_it(
    module: str, path: str, is_traced: bool
) -> None:
    space: dict[str, Any] = {"__name__": module, "sys": sys}
    exec(compile("def called():\n    return sys._getframe()\n", path, "exec"), space)

    trace = Points(Scheduler()).trace(space["called"](), "call", None)

    assert (trace is not None) is is_traced


def test_a_sync_covers_only_what_was_written_before_it_began(memory_path: Path) -> None:
    for folder in ("data", "index"):
        (memory_path / folder).mkdir()
    path = memory_path / "data" / "file"
    path.write_bytes(b"old")
    disk = Disk(memory_path)

    with path.open("r+b", buffering=0) as file:
        file.write(b"new")
        end_sync = disk.begin_sync(file.fileno())
        file.write(b" and newer")
        assert contents(disk) == [(b"old", b"new and newer")]
        end_sync()

    assert contents(disk) == [(b"new", b"new and newer")]


def contents(disk: Disk) -> list[tuple[bytes, ...]]:
    return list(disk.state().versions.values())


def ignore(_: int) -> None:
    pass
