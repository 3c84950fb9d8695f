"""`python -m dledger_store_faults KIND --count N --seed S`: print JSON, exit 1 on violations."""

import argparse
import sys
import tempfile
from pathlib import Path

from dledger_store_faults import block_faults, corrupt, crash, kills, power
from dledger_store_faults.contents import SCRATCH
from dledger_store_faults.tally import Tally

KINDS = ["power-cuts", "kills", "boundary-kills", "crash-states", "corruptions", "block-faults"]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="dledger_store_faults", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument(
        "--count", type=int, default=100, help="number of faults; 0 for all block faults"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--file-system", choices=list(power.MKFS), default="ext4", help="for power cuts"
    )
    parser.add_argument(
        "--journal-flushed", action="store_true", help="power cuts: flush the journal first"
    )
    parser.add_argument(
        "--without-sync", action="store_true", help="power cuts: ignore syncs, as a control"
    )
    parser.add_argument(
        "--deaf-to",
        choices=["files", "folders"],
        default="",
        help="crash states: ignore syncs of files or folders, as a control",
    )
    parser.add_argument("--only", default="", help="block faults: a pattern of the cells to run")
    return parser


def main() -> int:
    """Run one kind of fault and print its tally as JSON."""
    options = parser().parse_args()
    tally = _run(options)
    print(tally.to_json())
    return 1 if tally.violations_total else 0


def _run(options: argparse.Namespace) -> Tally:
    if options.kind == "power-cuts":
        flag = power.JOURNAL_FLUSHED if options.journal_flushed else power.NOTHING_FLUSHED
        return power.cut_power(
            options.file_system, flag, options.count, options.seed, synced=not options.without_sync
        )
    with tempfile.TemporaryDirectory(prefix="faults-", dir=SCRATCH) as name:
        if options.kind == "corruptions":
            return corrupt.judge_corruptions(Path(name), options.count, options.seed)
        if options.kind == "block-faults":
            return block_faults.judge_block_faults(
                Path(name), options.count, options.seed, only=options.only
            )
        if options.kind == "crash-states":
            return crash.judge_states(Path(name), options.count, options.seed, options.deaf_to)
        kill = kills.kill_at_random if options.kind == "kills" else kills.kill_at_boundaries
        return kill(Path(name) / "store", options.count, options.seed)


if __name__ == "__main__":
    sys.exit(main())
