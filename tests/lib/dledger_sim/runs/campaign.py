"""Campaigns: many seeds on all CPUs; failures are recorded and shrunk."""

import gc
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dledger_sim.judges.violation import ViolationError
from dledger_sim.runs.coverage import Coverage
from dledger_sim.runs.seeds import keeps_state, rots
from dledger_sim.runs.shrink import Shrinker
from dledger_sim.runs.simulation import record, simulate
from dledger_sim.runs.tape import Tape

SEEDS_PER_TASK = 25
FAILURES_MAX = 5
"""Failures after which a campaign ends."""
PROCESSES_MAX = 64
GC_THRESHOLD = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One seed that broke a rule."""

    seed: int
    event_count: int
    family: str
    told: str


@dataclass(slots=True, kw_only=True)
class Totals:
    """The counts of a campaign, or of a part of one."""

    seed_count: int = 0
    event_count: int = 0
    fault_count: int = 0
    virtual_s: float = 0.0
    leader_count: int = 0
    committed_count: int = 0
    acknowledged_count: int = 0
    cpu_s: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    state_counts: Counter[str] = field(default_factory=Counter)
    """Events of the members' states by name."""
    rot_counts: Counter[str] = field(default_factory=Counter)
    """Events of rotten entries by name."""
    replay_counts: Counter[str] = field(default_factory=Counter)
    """Elections by whether the leader's state was behind."""
    load_counts: Counter[str] = field(default_factory=Counter)
    """Checks of the rules for the load of clients, by name."""
    broker_counts: Counter[str] = field(default_factory=Counter)
    """Checks of the rules for brokers, by name."""

    def add(self, other: "Totals") -> None:
        """Add the counts of another part."""
        self.seed_count += other.seed_count
        self.event_count += other.event_count
        self.fault_count += other.fault_count
        self.virtual_s += other.virtual_s
        self.leader_count += other.leader_count
        self.committed_count += other.committed_count
        self.acknowledged_count += other.acknowledged_count
        self.cpu_s += other.cpu_s
        self.failures += other.failures
        self.coverage.counts.update(other.coverage.counts)
        self.state_counts.update(other.state_counts)
        self.rot_counts.update(other.rot_counts)
        self.replay_counts.update(other.replay_counts)
        self.load_counts.update(other.load_counts)
        self.broker_counts.update(other.broker_counts)

    def told(self) -> str:
        """Return the summary line of a campaign."""
        several = (
            self.state_counts, self.rot_counts, self.replay_counts, self.load_counts,
            self.broker_counts,
        )  # fmt: skip
        counts = sorted(sum(several, Counter[str]()).items())
        return (
            f"seeds={self.seed_count} events={self.event_count} faults={self.fault_count} "
            f"violations={len(self.failures)} virtual_s={self.virtual_s:.0f} "
            f"leaders={self.leader_count} committed={self.committed_count} "
            f"acknowledged={self.acknowledged_count} "
            f"events_per_cpu_s={self.event_count / max(self.cpu_s, 1e-9):.0f}"
            + "".join(f" {name}={count}" for name, count in counts)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Seeds for one process."""

    seeds: range
    event_count: int
    covered: bool
    states_only: bool = False
    """Whether to skip seeds whose members keep no state."""
    rot_only: bool = False
    """Whether to skip seeds without rot."""
    family: str = ""
    """The family of the seeds (`families`); empty for ordinary seeds."""


def run_task(task: Task) -> Totals:
    """Run the seeds of a task one after another."""
    totals = Totals()
    # Nearly all objects of a run are freed by reference counts, so the collector may run rarely.
    thresholds = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD)
    started_s = time.process_time()
    for seed in task.seeds:
        if (task.states_only and not keeps_state(seed)) or (task.rot_only and not rots(seed)):
            continue
        coverage = totals.coverage if task.covered else None
        totals.seed_count += 1
        try:
            summary = simulate(seed, task.event_count, family=task.family, coverage=coverage)
        except ViolationError as violation:
            totals.failures.append(
                Failure(
                    seed=seed,
                    event_count=task.event_count,
                    family=task.family,
                    told=str(violation),
                )
            )
            continue
        totals.event_count += summary.event_count
        totals.fault_count += summary.fault_count
        totals.virtual_s += summary.virtual_s
        totals.leader_count += summary.leader_count
        totals.committed_count += summary.committed_count
        totals.acknowledged_count += summary.acknowledged_count
        totals.state_counts.update(summary.state_counts)
        totals.rot_counts.update(summary.rot_counts)
        totals.replay_counts.update(summary.replay_counts)
        totals.load_counts.update(summary.load_counts)
        totals.broker_counts.update(summary.broker_counts)
    totals.cpu_s = time.process_time() - started_s
    gc.set_threshold(*thresholds)
    return totals


def run(
    seeds: range,
    event_count: int,
    *,
    process_count: int = 0,
    covered: bool = False,
    states_only: bool = False,
    rot_only: bool = False,
    family: str = "",
) -> Iterator[Totals]:
    """Run seeds and yield the counts of each part, in order.

    `process_count` 0 means one process per CPU. The campaign ends after FAILURES_MAX failures.
    """
    process_count = min(process_count or os.cpu_count() or 1, PROCESSES_MAX)
    tasks = [
        Task(
            seeds=seeds[at : at + SEEDS_PER_TASK],
            event_count=event_count,
            covered=covered,
            states_only=states_only,
            rot_only=rot_only,
            family=family,
        )
        for at in range(0, len(seeds), SEEDS_PER_TASK)
    ]
    if process_count == 1 or len(tasks) == 1:
        yield from _until_failed(map(run_task, tasks))
        return
    with multiprocessing.get_context("fork").Pool(min(process_count, len(tasks))) as pool:
        yield from _until_failed(pool.imap(run_task, tasks))


def _until_failed(parts: Iterator[Totals]) -> Iterator[Totals]:
    failure_count = 0
    for part in parts:
        yield part
        failure_count += len(part.failures)
        if failure_count >= FAILURES_MAX:
            return


def keep(failure: Failure, folder: Path) -> Path:
    """Record a failing seed, shrink its tape, and write it; return the file."""
    tape, violation = record(failure.seed, failure.event_count, family=failure.family)
    if violation is None:
        raise AssertionError(f"seed {failure.seed} failed, but not when it was recorded")
    return write(shrunk(tape), folder, f"{failure.family}-seed-{failure.seed}".lstrip("-"))


def shrunk(tape: Tape) -> Tape:
    """Return a shrunk tape, or the same tape if its replay does not fail."""
    try:
        return Shrinker(tape).run()
    except ValueError:
        return tape


def write(tape: Tape, folder: Path, name: str) -> Path:
    """Write a tape to a folder; return the file."""
    path = folder / f"{name}.json"
    path.write_text(tape.to_json())
    return path
