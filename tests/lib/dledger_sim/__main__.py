"""Run seeds: one with its transcript, or many in a row.

PYTHONPATH=tests/lib python -m dledger_sim --seed 7
PYTHONPATH=tests/lib python -m dledger_sim --seed 0 --count 1000 --events 3000
"""

import argparse
import sys
import time

from dledger_sim.simulation import simulate
from dledger_sim.transcript import Transcript
from dledger_sim.violation import ViolationError


def main() -> int:
    """Return 1 when a seed found something."""
    parser = argparse.ArgumentParser(prog="dledger_sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds, without transcripts")
    parser.add_argument("--events", type=int, default=1500, help="events under faults, a seed")
    parser.add_argument("--lines", type=int, default=400, help="last lines of the transcript")
    arguments = parser.parse_args()
    if arguments.count == 1:
        return _show(arguments.seed, arguments.events, arguments.lines)
    return _run_many(range(arguments.seed, arguments.seed + arguments.count), arguments.events)


def _show(seed: int, event_count: int, lines_max: int) -> int:
    transcript = Transcript(lines_max)
    verdict = ""
    try:
        summary = simulate(seed, event_count, transcript)
    except ViolationError as violation:
        verdict = str(violation)
    print("\n".join(transcript.lines))
    print(verdict or summary, f"digest {transcript.hexdigest()}", sep="\n")
    return 1 if verdict else 0


def _run_many(seeds: range, event_count: int) -> int:
    started_s = time.perf_counter()
    summaries = []
    failed_count = 0
    for seed in seeds:
        try:
            summaries.append(simulate(seed, event_count))
        except ViolationError as violation:
            failed_count += 1
            print(violation)
    elapsed_s = time.perf_counter() - started_s
    events = sum(summary.event_count for summary in summaries)
    print(
        f"{len(seeds)} seeds, {failed_count} failed; {events} events in {elapsed_s:.1f} s "
        f"({events / elapsed_s:.0f}/s); {sum(one.virtual_s for one in summaries):.0f} virtual s, "
        f"{sum(one.leader_count for one in summaries)} leaders, "
        f"{sum(one.committed_count for one in summaries)} entries committed, "
        f"{sum(one.acknowledged_count for one in summaries)} acknowledged"
    )
    return 1 if failed_count else 0


if __name__ == "__main__":
    sys.exit(main())
