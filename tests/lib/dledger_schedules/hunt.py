"""Hunt planted bugs of the store's threads: `python -m dledger_schedules.hunt [NAME …]`.

The bugs are patches of the source, as the simulator's (`dledger_sim.mutants.hunt`). Each hunt runs
in a process of its own, which imports the store only after planting.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from dledger_sim.mutants.hunt import Mutant, load, plant

FOLDER: Final = Path(__file__).resolve().parents[2] / "store" / "mutants"
SCHEDULES_MAX: Final = 20_000


def mutants() -> list[Mutant]:
    """Load all planted bugs of the store's threads."""
    return load(FOLDER)


def hunt(name: str, count: int) -> int | None:
    """Plant a bug in this process; return how many schedules found it, None if none did."""
    (mutant,) = [mutant for mutant in mutants() if mutant.name == name]
    plant(mutant)
    from dledger_schedules.schedule import Schedules
    from dledger_store_faults.contents import SCRATCH

    with (
        tempfile.TemporaryDirectory(prefix="schedules-", dir=SCRATCH) as top,
        Schedules(Path(top)).ready() as schedules,
    ):
        for seed in range(1, count + 1):
            if wrong := schedules.run(seed).wrong:
                print(wrong[0], file=sys.stderr)
                return seed
    return None


def hunt_apart(name: str, count: int = SCHEDULES_MAX) -> tuple[int | None, str]:
    """Hunt a bug in a new process; return the number of schedules, and what was found."""
    finished = subprocess.run(
        [sys.executable, "-m", "dledger_schedules.hunt", "--here", name, "--count", str(count)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    with contextlib.suppress(ValueError):
        return int(finished.stdout), finished.stderr.strip()
    if finished.returncode:
        raise RuntimeError(f"the hunt of {name} failed: {finished.stderr[-2000:]}")
    return None, ""


def main() -> int:
    """Hunt bugs and print what found them; return 1 if one survives."""
    parser = argparse.ArgumentParser(prog="dledger_schedules.hunt", description=__doc__)
    parser.add_argument("names", nargs="*", help="the bugs to hunt; default all")
    parser.add_argument("--count", type=int, default=SCHEDULES_MAX, help="schedules per bug")
    parser.add_argument("--here", metavar="NAME", help="hunt one bug in this process")
    options = parser.parse_args()
    if options.here:
        print(hunt(options.here, options.count))
        return 0
    survivors = 0
    for name in options.names or [mutant.name for mutant in mutants()]:
        needed, found = hunt_apart(name, options.count)
        survivors += needed is None
        print(f"{name:60} {needed or 'SURVIVED'}  {found[:120]}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
