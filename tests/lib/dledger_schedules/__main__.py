"""`python -m dledger_schedules --count N --seed S`: print JSON, exit 1 if a schedule fails."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from dledger_schedules.schedule import Schedules
from dledger_store_faults.contents import SCRATCH
from dledger_store_faults.tally import Tally


def main() -> int:
    """Run schedules and print their tally, or show the trace of one."""
    parser = argparse.ArgumentParser(prog="dledger_schedules", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="number of schedules")
    parser.add_argument("--seed", type=int, default=1, help="the first one's seed")
    parser.add_argument("--trace", action="store_true", help="print what each thread did")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="schedules-", dir=SCRATCH) as name:
        tally = run_many(Path(name), options.seed, options.count, trace=options.trace)
    print(tally.to_json())
    return 1 if tally.violations_total else 0


def run_many(top: Path, first_seed: int, count: int, *, trace: bool = False) -> Tally:
    """Run schedules and count what they showed."""
    tally, began = Tally(), time.monotonic()
    with Schedules(top).ready() as schedules:
        for seed in range(first_seed, first_seed + count):
            outcome = schedules.run(seed, keeps_trace=trace)
            tally.faults += 1
            tally.count("points", outcome.points)
            tally.count("crashes", outcome.crashed)
            tally.count("damaged", outcome.damaged)
            tally.blame(f"seed {seed}: {wrong}" for wrong in outcome.wrong)
            for line in outcome.trace:
                print(line)
    tally.seconds = time.monotonic() - began
    return tally


if __name__ == "__main__":
    sys.exit(main())
