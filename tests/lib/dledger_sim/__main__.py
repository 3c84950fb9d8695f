"""Run many seeds with a summary, or one seed or tape with its event log.

make sim SEEDS=1000 FIRST_SEED=0      make sim SEED=7      make sim TAPE=tests/sim/tapes/x.json
"""

import argparse
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dledger_sim.judges.violation import ViolationError
from dledger_sim.runs import campaign, ledger
from dledger_sim.runs.families import FAMILIES
from dledger_sim.runs.simulation import replay, simulate
from dledger_sim.runs.tape import Tape
from dledger_sim.runs.transcript import HEADER, Transcript

EVENT_COUNT = 1500
TAPES = Path("tests/sim/tapes")
LEDGER = Path("docs/simulation-ledger.jsonl")


def main() -> int:
    """Run what the arguments select; return 1 if a rule was broken."""
    logging.disable(logging.WARNING)  # the faults that members warn of are intended here
    arguments = _arguments()
    if arguments.report:
        print(ledger.report(LEDGER))
        return 0
    if arguments.tape is not None:
        tape = Tape.load(arguments.tape)
        return _show(lambda transcript: replay(tape, transcript), arguments.lines)
    if arguments.seed is not None:
        seed, events = arguments.seed, arguments.events
        family = arguments.family
        return _show(
            lambda transcript: simulate(seed, events, transcript, family=family), arguments.lines
        )
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    return _run(seeds, arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="dledger_sim",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="run this seed and print its events")
    parser.add_argument("--tape", type=Path, help="run this tape and print its events")
    parser.add_argument("--report", action="store_true", help="print the totals of the ledger")
    parser.add_argument("--seeds", type=int, default=1000, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=0, help="first seed")
    parser.add_argument(
        "--events", type=int, default=EVENT_COUNT, help="events with faults per seed"
    )
    parser.add_argument("--lines", type=int, default=400, help="number of last events to print")
    parser.add_argument("--processes", type=int, default=0, help="processes; 0 for one per CPU")
    parser.add_argument(
        "--coverage", action="store_true", help="print the situations that occurred"
    )
    parser.add_argument(
        "--states", action="store_true", help="run only seeds whose members keep a state"
    )
    parser.add_argument(
        "--rot", action="store_true", help="run only seeds in which log entries rot"
    )
    parser.add_argument(
        "--family", choices=sorted(FAMILIES), default="", help="run seeds of this family"
    )
    parser.add_argument("--ledger", action="store_true", help=f"add the campaign to {LEDGER}")
    parser.add_argument("--tapes", type=Path, default=TAPES, help="folder for tapes of failures")
    return parser.parse_args()


def _show(run: Callable[[Transcript], object], lines_max: int) -> int:
    transcript = Transcript(lines_max)
    verdict = ""
    try:
        summary = run(transcript)
    except ViolationError as violation:
        verdict = f"VIOLATION {violation}"
    print(HEADER, *transcript.lines, sep="\n")
    print(verdict or summary, f"digest {transcript.hexdigest()}", sep="\n")
    return 1 if verdict else 0


def _run(seeds: range, arguments: argparse.Namespace) -> int:
    started_s = time.perf_counter()
    totals, commit = campaign.Totals(), ledger.commit(LEDGER)
    parts = campaign.run(
        seeds,
        arguments.events,
        process_count=arguments.processes,
        covered=arguments.coverage,
        states_only=arguments.states,
        rot_only=arguments.rot,
        family=arguments.family,
    )
    for part in parts:
        totals.add(part)
        for failure in part.failures:
            print(f"VIOLATION {failure.told}")
            family = f" FAMILY={failure.family}" if failure.family else ""
            print(
                f"  replay: make sim SEED={failure.seed} EVENTS={arguments.events}{family}",
                flush=True,
            )
    for failure in totals.failures[: campaign.FAILURES_MAX]:
        print(f"  tape: make sim TAPE={campaign.keep(failure, arguments.tapes)}", flush=True)
    if arguments.coverage:
        print(totals.coverage.told())
    if arguments.ledger:
        wall_s = time.perf_counter() - started_s
        ledger.append(LEDGER, commit, seeds, arguments.events, totals, wall_s)
    print(totals.told())
    return 1 if totals.failures else 0


if __name__ == "__main__":
    sys.exit(main())
