"""Plant bugs in the node, one at a time, and count the seeds that find each of them.

A planted bug is a patch of one place in a module's source. It is applied when the module is
imported, so each hunt runs in a process of its own and imports the node only after planting.

    python -m dledger_sim.mutants.hunt                 hunt all bugs, and write the table
    python -m dledger_sim.mutants.hunt --hunt NAME     hunt one bug
    python -m dledger_sim.mutants.hunt --keep NAME     hunt one bug, and keep a small tape
"""

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

TAPES = Path("tests/sim/tapes")
PAGE = Path("docs/simulator.md")
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
PACKAGE = "dledger_node"
PACKAGES = (PACKAGE, "dledger_broker")
CORE = f"{PACKAGE}.raft"
LOOP = f"{PACKAGE}.shell.loop"
WAITING = f"{PACKAGE}.services.waiting"
READ_INDEX = f"{PACKAGE}.services.read_index"
"""Reads on members that do not lead, which only some seeds have."""
REMEDY = f"{PACKAGE}.healing.repair_plan"
"""The decisions of a damaged member, which only seeds with rot reach."""
SEED_COUNT = 2000
EQUIVALENT_SEED_COUNT = 60
"""Seeds for a bug that is proved to be equivalent, as a test of the proof."""
EVENT_COUNT = 1500
CPU_S_MAX = 120.0
SEED_CPU_S_MAX = 8.0
"""Limit for one seed, which normally takes a fraction of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One planted bug."""

    name: str
    module: str
    """The patched module of the node."""
    rule: str
    """The rule that the bug breaks, or its origin."""
    old: str
    new: str
    equivalent: str = ""
    """The proof that no run can show the bug; empty for most bugs."""
    family: str = ""
    """The family of runs that finds the bug (`runs.families`); empty for ordinary seeds."""
    found_by: str = ""
    """The tests that find a bug that seeds meet too rarely, as arguments of pytest."""

    @property
    def shows_without_state(self) -> bool:
        """Return whether a seed without a state may find the bug."""
        return self.module.startswith((CORE, LOOP, WAITING))

    def applied(self, source: str) -> str:
        """Return the source with the bug; raises ValueError unless `old` occurs once."""
        count = source.count(self.old)
        if count != 1:
            raise ValueError(
                f"{self.name}: {count} places in {self.module} match {self.old!r}; rewrite the "
                "patch so that it fits exactly one"
            )
        return source.replace(self.old, self.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of a hunt."""

    name: str
    seed: int | None
    """The first seed that found the bug, or None."""
    rule: str
    seeds_tried: int
    cpu_s: float


def load(folder: Path | None = None) -> list[Mutant]:
    """Load all planted bugs. A file is for one module; the default is the core's of that name. A
    bug may name another module.
    """
    mutants = []
    for path in sorted((folder or _folder()).glob("*.toml")):
        read = tomllib.loads(path.read_text())
        module = read.get("module", f"{CORE}.{path.stem}")
        shared = {"module": module, "family": read.get("family", "")}
        mutants += [Mutant(**(shared | fields)) for fields in read["mutant"]]
    return mutants


def source_of(module: str) -> str:
    """Return the source of a module without importing it."""
    return Path(_spec(module).origin or "").read_text()


def plant(mutant: Mutant) -> None:
    """Plant a bug for the next import. Raises RuntimeError if the node is imported already."""
    if any(name.startswith(PACKAGES) for name in sys.modules):
        raise RuntimeError(f"{PACKAGE} is imported already; plant the bug in a new process")
    sys.meta_path.insert(0, _Planter(mutant))


class _Planter(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the patched module."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib`."""
        if fullname != self._mutant.module:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=_spec(fullname).origin)

    def exec_module(self, module: ModuleType) -> None:
        """See `importlib`."""
        source = self._mutant.applied(source_of(self._mutant.module))
        exec(compile(source, f"{self._mutant.name}.py", "exec"), module.__dict__)


def _spec(module: str) -> ModuleSpec:
    """Return the spec of a module without importing its packages."""
    path: list[str] | None = None
    for depth in range(1, module.count(".") + 2):
        name = ".".join(module.split(".")[:depth])
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None:
            raise ModuleNotFoundError(f"there is no module {name}")
        path = list(spec.submodule_search_locations or ())
    return spec


def _folder() -> Path:
    """Return the folder of the patches, independent of the working directory."""
    return Path(__file__).resolve().parents[3] / "sim" / "mutants"


def hunt(name: str, seed_count: int, event_count: int, cpu_s_max: float) -> Found:
    """Plant a bug in this process, and run seeds that may find it until one does."""
    (mutant,) = [mutant for mutant in load() if mutant.name == name]
    plant(mutant)
    from dledger_sim.judges.violation import ViolationError
    from dledger_sim.runs.seeds import keeps_state, reads_at_followers, rots
    from dledger_sim.runs.simulation import simulate

    signal.signal(signal.SIGVTALRM, _never_ends)
    started_s = time.process_time()
    seeds: Iterator[int] = itertools.count()
    if mutant.family:
        pass  # each seed of the family may find it
    elif mutant.module == REMEDY:
        seeds = filter(rots, seeds)
    elif mutant.module == READ_INDEX:
        seeds = filter(reads_at_followers, seeds)
    elif not mutant.shows_without_state:
        seeds = filter(keeps_state, seeds)
    for seed in itertools.islice(seeds, seed_count):
        signal.setitimer(signal.ITIMER_VIRTUAL, SEED_CPU_S_MAX)
        try:
            simulate(seed, event_count, family=mutant.family)
        except ViolationError as violation:
            cpu_s = time.process_time() - started_s
            return Found(
                name=name, seed=seed, rule=violation.rule, seeds_tried=seed + 1, cpu_s=cpu_s
            )
        if time.process_time() - started_s > cpu_s_max:
            break
    cpu_s = time.process_time() - started_s
    return Found(name=name, seed=None, rule="", seeds_tried=seed + 1, cpu_s=cpu_s)


def keep(name: str, seed_count: int, folder: Path) -> Path:
    """Hunt a bug in this process, and write a shrunk tape of the seed that found it."""
    found = hunt(name, seed_count, EVENT_COUNT, CPU_S_MAX)
    if found.seed is None:
        raise LookupError(f"{name} is not found in {found.seeds_tried} seeds")
    from dledger_sim.runs.campaign import shrunk, write
    from dledger_sim.runs.simulation import record

    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    (mutant,) = [mutant for mutant in load() if mutant.name == name]
    tape, _ = record(found.seed, EVENT_COUNT, family=mutant.family)
    return write(replace(shrunk(tape), mutant=name), folder, name.replace("_", "-"))


def finds_again(path: Path) -> bool:
    """Return whether a tape breaks its rule with its planted bug, in a new process."""
    finished = _run_apart("--replay", str(path))
    return finished.stdout.strip() == "found"


def _replay(path: Path) -> None:
    mutant_name = json.loads(path.read_text())["mutant"]
    (mutant,) = [mutant for mutant in load() if mutant.name == mutant_name]
    plant(mutant)
    from dledger_sim.judges.violation import ViolationError
    from dledger_sim.runs.simulation import replay
    from dledger_sim.runs.tape import Tape

    tape = Tape.load(path)
    try:
        replay(tape)
    except ViolationError as violation:
        print("found" if violation.rule == tape.rule else violation)
    else:
        print("not found")


def _never_ends(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"the seed took more than {SEED_CPU_S_MAX} s")


def hunt_apart(name: str, seed_count: int = SEED_COUNT, cpu_s_max: float = CPU_S_MAX) -> Found:
    """Hunt a bug in a new process."""
    finished = _run_apart("--hunt", name, "--seeds", str(seed_count), "--cpu-s", str(cpu_s_max))
    fields: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return Found(**fields)


def _run_apart(*arguments: str) -> subprocess.CompletedProcess[str]:
    finished = subprocess.run(
        [sys.executable, "-m", "dledger_sim.mutants.hunt", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if finished.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)} failed: {finished.stderr[-2000:]}")
    return finished


def table(mutants: Sequence[Mutant], found: Mapping[str, Found], before: str = "") -> str:
    """Return the table of the documentation; a bug that was not hunted keeps its row."""
    lines = ["| Planted bug | in | seeds needed | found as |", "| --- | --- | --- | --- |"]
    rows = {row.split(" | ")[0]: row for row in before.splitlines()}
    for mutant in mutants:
        first = f"| {mutant.name.replace('_', ' ')}"
        if mutant.name not in found:
            lines += [rows[first]] if first in rows else []
            continue
        one = found[mutant.name]
        module = mutant.module.removeprefix(f"{PACKAGE}.").removeprefix("raft.")
        needed = str(one.seeds_tried)
        told = one.rule
        if one.seed is None:
            needed = f"not in {one.seeds_tried}"
            told = f"equivalent: {mutant.equivalent}" if mutant.equivalent else "**not found**"
            told = f"found by `{mutant.found_by}`" if mutant.found_by else told
        lines.append(f"{first} | `{module}` | {needed} | {told} |")
    return "\n".join(lines)


def write_table(page: Path, found: Mapping[str, Found]) -> None:
    """Write the table between its marks in the page."""
    before, rest = page.read_text().split(BEGIN)
    present, after = rest.split(END)
    text = table(load(), found, present)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def main() -> int:
    """Run the hunts; return 1 if a bug that is not proved equivalent survives."""
    logging.disable(logging.WARNING)  # the faults that members warn of are intended here
    parser = argparse.ArgumentParser(
        prog="dledger_sim.mutants.hunt",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--hunt", metavar="NAME", help="hunt one bug in this process")
    parser.add_argument("--keep", metavar="NAME", help=f"hunt one bug, and keep a tape in {TAPES}")
    parser.add_argument("--replay", type=Path, help="replay a tape with its planted bug")
    parser.add_argument("--only", nargs="*", help="hunt only these bugs; others keep their rows")
    parser.add_argument("--seeds", type=int, default=SEED_COUNT, help="seeds per bug")
    parser.add_argument("--cpu-s", type=float, default=CPU_S_MAX, help="CPU seconds per bug")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="parallel hunts")
    arguments = parser.parse_args()
    if arguments.hunt:
        found = hunt(arguments.hunt, arguments.seeds, EVENT_COUNT, arguments.cpu_s)
        print(json.dumps({name: getattr(found, name) for name in Found.__dataclass_fields__}))
        return 0
    if arguments.keep:
        print(keep(arguments.keep, arguments.seeds, TAPES))
        return 0
    if arguments.replay:
        _replay(arguments.replay)
        return 0
    mutants = [one for one in load() if not arguments.only or one.name in arguments.only]
    with ThreadPoolExecutor(arguments.processes) as threads:
        hunted = []
        hunts = threads.map(
            lambda one: hunt_apart(
                one.name,
                EQUIVALENT_SEED_COUNT if one.equivalent else arguments.seeds,
                arguments.cpu_s,
            ),
            mutants,
        )
        for mutant, one in zip(mutants, hunts, strict=True):
            hunted.append(one)
            told = one.rule if one.seed is not None else "equivalent" * bool(mutant.equivalent)
            verdict = f"{one.seeds_tried:>5} seeds {one.cpu_s:>6.1f} s  {told or 'SURVIVED'}"
            print(f"{mutant.name:45} {verdict}", flush=True)
    survivors = [
        mutant.name
        for mutant, one in zip(mutants, hunted, strict=True)
        if one.seed is None and not mutant.equivalent and not mutant.found_by
    ]
    killed = sum(one.seed is not None for one in hunted)
    print(f"mutants={len(mutants)} found={killed} survivors={len(survivors)} {survivors}")
    write_table(PAGE, {one.name: one for one in hunted})
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
