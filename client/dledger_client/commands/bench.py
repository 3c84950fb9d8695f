"""`dledger bench`: measure the append rate and latency of a group."""

import argparse
import asyncio
import math
import os
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from dledger_client.append.outcomes import Acknowledged, Refused
from dledger_client.client import DLedgerClient
from dledger_client.commands import group_client, options, printing, progress
from dledger_client.commands.exits import ExitCode
from dledger_client.errors import GroupUnreachableError
from dledger_formats.log import disk
from dledger_formats.protocol.codes import DLedgerResponseCode

SECONDS_MAX: Final = 3600
STEP_S: Final = 0.5
"""How often the progress bar moves."""
BUCKET_GROWTH: Final = 1.01
"""Width of a latency bucket relative to the next lower one; the error is 0.5 %."""
TITLES: Final = {
    "appendsPerSecond": "appends per second",
    "p50Ms": "latency, median, ms",
    "p99Ms": "latency, 99 %, ms",
    "longestMs": "longest latency, ms",
    "inFlight": "appends in flight",
    "bodyBytes": "bytes of a body",
    "measured": "appends measured",
    "acknowledged": "acknowledged in all",
    "unknown": "unknown",
    "refused": "refused",
    "leader": "leader",
    "leaderChanges": "changes of leader",
}
"""The name of each figure in text, with its unit."""
_LOG_GROWTH: Final = math.log(BUCKET_GROWTH)
SMALLEST_S: Final = 1e-6


def add_parser(commands: options.Commands) -> None:
    """Define the arguments of `dledger bench`."""
    parser = options.new_parser(
        commands,
        "bench",
        summary="measure the append rate and latency",
        description="Append random bodies and print the rate and the latency of the appends. "
        "Latency is the time from passing a body to the client until its outcome is known. The "
        "entries stay in the log: do not run this on a production group.",
        examples={
            "dledger bench": "5 s, 64 appends of 1 KiB in flight",
            "dledger bench --in-flight 1000 --body-bytes 100": "many small appends in flight",
        },
        exit_codes="0 all acknowledged, 1 nothing was measured, 2 usage error, 3 some outcomes "
        "unknown, 4 some refused, 5 group unreachable.",
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=_duration,
        default=5.0,
        help="duration of the measurement, in seconds (default: %(default)s)",
    )
    parser.add_argument(
        "--warm-up",
        metavar="S",
        type=_duration,
        default=1.0,
        help="duration of the load before the measurement, in seconds (default: %(default)s)",
    )
    parser.add_argument(
        "--in-flight",
        metavar="N",
        type=options.in_flight,
        default=64,
        help="number of appends in flight (default: %(default)s)",
    )
    parser.add_argument(
        "--body-bytes",
        metavar="N",
        type=_body_size,
        default=1024,
        help="size of each body, in bytes (default: %(default)s)",
    )
    options.add_group_options(parser)
    progress.add_option(parser)
    options.add_output_option(parser, "text: a table; json: one line")
    parser.set_defaults(run=run)


def _duration(text: str) -> float:
    return options.seconds(text, SECONDS_MAX)


def _body_size(text: str) -> int:
    return options.whole_number(text, 0, disk.BODY_SIZE_MAX)


@dataclass(slots=True)
class Latencies:
    """A latency histogram of bounded size."""

    count: int = 0
    longest_s: float = 0.0
    unreachable: str = ""
    """Why an append found no leader in time; empty if all did."""
    problem: str = ""
    """Why the last append that failed did; empty if none did."""
    _buckets: Counter[int] = field(default_factory=Counter)

    def add(self, latency_s: float) -> None:
        """Count one latency."""
        self.count += 1
        self.longest_s = max(self.longest_s, latency_s)
        self._buckets[int(math.log(max(latency_s, SMALLEST_S)) // _LOG_GROWTH)] += 1

    def percentile_s(self, share: float) -> float:
        """Return the latency below which `share` (0 to 1) of all latencies lie; 0 if empty."""
        below = 0
        for bucket, count in sorted(self._buckets.items()):
            below += count
            if below >= share * self.count:
                return math.exp((bucket + 0.5) * _LOG_GROWTH)
        return 0.0


async def run(arguments: argparse.Namespace) -> int:
    """Measure, print the figures and return the exit code."""
    total_s = arguments.warm_up + arguments.seconds
    async with group_client.open_client(arguments) as client:
        await client.metadata()  # fail now if the group is unreachable
        with progress.bar(arguments.progress, total_s, progress.SECONDS) as bar:
            showing = asyncio.create_task(_show_time(bar, total_s))
            try:
                latencies = await _load(client, arguments)
                bar.update(total_s - bar.n)
            finally:
                showing.cancel()
                await asyncio.gather(showing, return_exceptions=True)
    statistics = client.statistics
    if not statistics.acknowledged and latencies.unreachable:
        raise GroupUnreachableError(latencies.unreachable)
    figures = _figures(client, latencies, arguments)
    if arguments.output == "json":
        printing.write_json(figures)
    else:
        for name, value in figures.items():
            printing.write_line(f"{TITLES[name]:22}{_cell(value):>12}")
    if latencies.problem:
        printing.complain(f"dledger: not every append was acknowledged: {latencies.problem}")
    elif not latencies.count:
        printing.complain(
            "dledger: no append that began and ended in the measured time; use more --seconds or "
            "fewer --in-flight"
        )
    if statistics.unknown:
        return ExitCode.UNKNOWN
    if latencies.unreachable:
        return ExitCode.UNREACHABLE
    if statistics.refused:
        return ExitCode.REFUSED
    return ExitCode.OK if latencies.count else ExitCode.FAILED


async def _show_time(bar: progress.Bar, total_s: float) -> None:
    """Move the bar several times a second."""
    while bar.n + STEP_S < total_s:
        await asyncio.sleep(STEP_S)
        bar.update(STEP_S)


async def _load(client: DLedgerClient, arguments: argparse.Namespace) -> Latencies:
    """Keep appends in flight until the time is over; return the latencies after the warm-up."""
    loop = asyncio.get_running_loop()
    handed_s: deque[float] = deque()
    latencies = Latencies()
    body = os.urandom(arguments.body_bytes)
    begin_s = loop.time() + arguments.warm_up
    end_s = begin_s + arguments.seconds

    def bodies() -> Iterator[bytes]:
        while (now_s := loop.time()) < end_s:
            handed_s.append(now_s)
            yield body

    async for outcome in client.append_all(bodies(), in_flight=arguments.in_flight):
        now_s, sent_s = loop.time(), handed_s.popleft()
        if not isinstance(outcome, Acknowledged):
            latencies.problem = outcome.reason
        if isinstance(outcome, Refused) and outcome.code is DLedgerResponseCode.METADATA_ERROR:
            latencies.unreachable = outcome.reason
        if isinstance(outcome, Acknowledged) and begin_s <= now_s < end_s:
            latencies.add(now_s - sent_s)
    return latencies


def _figures(
    client: DLedgerClient, latencies: Latencies, arguments: argparse.Namespace
) -> dict[str, Any]:
    statistics = client.statistics
    return {
        "appendsPerSecond": round(latencies.count / arguments.seconds, 1),
        "p50Ms": round(latencies.percentile_s(0.5) * 1000, 3),
        "p99Ms": round(latencies.percentile_s(0.99) * 1000, 3),
        "longestMs": round(latencies.longest_s * 1000, 3),
        "inFlight": arguments.in_flight,
        "bodyBytes": arguments.body_bytes,
        "measured": latencies.count,
        "acknowledged": statistics.acknowledged,
        "unknown": statistics.unknown,
        "refused": statistics.refused,
        "leader": statistics.leader_id,
        "leaderChanges": statistics.leader_changes,
    }


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value or "-")
