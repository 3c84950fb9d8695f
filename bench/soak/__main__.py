"""Everything at once, on a group of real processes: appends, reads, floods, faults, scaling.

    make soak                              25 minutes
    make soak MINUTES=5 SEED=2             or python -m bench.soak --minutes 5 --seed 2
    python -m bench.soak --previous-release --minutes 10       members of two releases

Three members and one that joins and leaves run as processes on loopback, under plain and idempotent
appends, tailing readers, a reader of the whole log, and strangers: HTTP connections that do not
read, JSON of brackets, HELLOs that are refused, frames without an end. Meanwhile members are killed
with SIGKILL, frozen, made leader, let rot in sealed segments while they run, and added and removed.

No acknowledged append may be lost or be in the log twice, no reader may be served anything else
than what the log holds, only a strike on the leader may change the term, memory must stay flat and
turns of the event loops short, and in the end all members must be sound and hold the same bytes.
The exit code is 1 if any of this is violated; logs and folders of the members are then kept.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import uvloop

from bench.soak.run import Soak
from tools.groups.releases import previous_release


def main() -> int:
    """Run a soak; return 1 if a rule was violated."""
    parser = argparse.ArgumentParser(
        prog="bench.soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--seed", type=int, default=1, help="the seed of the strikes")
    parser.add_argument("--per-second", type=int, default=300, help="appends of each producer")
    parser.add_argument("--election-timeout-ms", type=int, default=1000)
    parser.add_argument(
        "--previous-release",
        action="store_true",
        help="begin with members of the previous release, and change between it and this one",
    )
    parser.add_argument("--folder", help="where members keep their logs meanwhile")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-", dir=options.folder))
    soak = Soak(
        folder,
        seconds=options.minutes * 60,
        seed=options.seed,
        per_second=options.per_second,
        election_timeout_ms=options.election_timeout_ms,
        earlier=previous_release() if options.previous_release else None,
    )
    failed = True
    try:
        uvloop.run(soak.run())
        failed = bool(soak.verdict.violations)
    finally:
        if failed:
            print(f"logs and folders of the members: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
