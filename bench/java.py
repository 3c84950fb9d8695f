"""Java DLedger and this node under the same load: same client, same bodies, one run.

    make bench-java                     or, for other loads:
    python -m bench.java --rounds 3 --seconds 4 --body-bytes 1024 --in-flight 1 64 1000

Every group has three members and the machine to itself, because idle members, Java's above all,
take processor time from the group under test. Each round starts every group in turn, warms it up,
puts it under every load, and stops it, so that other activity of the machine affects all groups
alike. The warm-up is the same number of appends for every group: enough for Java to compile its
code, and equal because memory that a virtual machine touches for the first time can be slow. The
figures are medians over the rounds. An append that is not acknowledged ends the run; Java answers
502 when it is overloaded.

Java acknowledges an append once a majority has it in memory. It is compared with AsyncFlush, which
does the same, and with SyncFlush, the default, which also waits for fdatasync.
"""

import argparse
import math
import os
import platform
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import uvloop

from bench.bare_client import Load, bare_load
from dledger_formats.http.status import FlushDiskType
from tools import java_dledger
from tools.groups.java_group import JavaGroup
from tools.groups.node_group import NodeGroup

JAVA_VERSION = "0.3.1.2"
JVM_OPTIONS = ("-Xmx1g",)
WARM_UP_IN_FLIGHT = 64
PYTHON_OPTIONS: dict[str, Any] = {
    "heartbeat_interval_ms": 250,
    "election_timeout_ms": 1000,
    "segment_size_bytes": 256 << 20,
    "index_segment_size_bytes": 40 << 20,
}
JAVA_OPTIONS: dict[str, Any] = {
    "heartBeatTimeIntervalMs": 2000,
    "mappedFileSizeForEntryData": 256 << 20,
    "mappedFileSizeForEntryIndex": 40 << 20,
}


Latencies: TypeAlias = list[float]
"""Latencies in seconds."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A kind of group: its name in the table, and a factory for a group in a given folder."""

    name: str
    group_in: Callable[[Path], NodeGroup | JavaGroup]


def main() -> None:
    """Measure every load on every group and print a table with the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="duration of each load")
    parser.add_argument(
        "--warm-up", type=int, default=200_000, help="minimum number of appends after each start"
    )
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 64, 1000])
    parser.add_argument(
        "--folder", help="where the members keep their logs (default: a temporary folder)"
    )
    arguments = parser.parse_args()
    print(
        f"groups of 3 and the client on one machine: {os.cpu_count()} cores, "
        f"{platform.machine()}, Python {platform.python_version()}; bodies of "
        f"{arguments.body_bytes} bytes, {arguments.rounds} rounds of {arguments.seconds:g} s; "
        f"load average at the start {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    body_bytes = arguments.body_bytes
    loads = [
        Load(in_flight=in_flight, body_bytes=body_bytes, seconds=arguments.seconds)
        for in_flight in arguments.in_flight
    ]
    rounds: dict[Load, dict[str, list[Latencies]]] = {load: defaultdict(list) for load in loads}
    for contender in contenders() * arguments.rounds:
        with (
            tempfile.TemporaryDirectory(dir=arguments.folder) as folder,
            contender.group_in(Path(folder)) as group,
        ):
            warm_up(group, arguments.warm_up, body_bytes)
            for load in loads:
                rounds[load][contender.name].append(sorted(under(group, load)))
    for load in loads:
        print_table(load, rounds[load])


def contenders() -> list[Contender]:
    """Return Java with its defaults and with batch push, and this node with each flush type."""
    class_path = java_dledger.build(JAVA_VERSION)
    java = partial(JavaGroup, class_path=class_path, jvm_options=JVM_OPTIONS, **JAVA_OPTIONS)
    python = partial(NodeGroup, **PYTHON_OPTIONS)
    return [
        Contender(f"Java {JAVA_VERSION}", java),
        Contender(f"Java {JAVA_VERSION}, batch push", partial(java, enableBatchPush=True)),
        *(
            Contender(f"Python, {flush}", partial(python, flush_disk_type=flush))
            for flush in (FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH)
        ),
    ]


def warm_up(group: NodeGroup | JavaGroup, appends: int, body_bytes: int) -> None:
    """Put a group's leader under a load until it has acknowledged this many appends."""
    second = Load(in_flight=WARM_UP_IN_FLIGHT, body_bytes=body_bytes, seconds=1.0)
    acknowledged = 0
    while acknowledged < appends:
        acknowledged += len(under(group, second))


def under(group: NodeGroup | JavaGroup, load: Load) -> Latencies:
    """Put a group's leader under a load; return the latencies in order of arrival."""
    leader_id = group.master() if isinstance(group, NodeGroup) else group.leader()
    return uvloop.run(bare_load(group.peers[leader_id], "g", leader_id, load))


def print_table(load: Load, rounds: dict[str, list[Latencies]]) -> None:
    """Print the lines of one load; the ratios are to Java with its defaults."""
    print(f"\n{load.in_flight} in flight             appends/s     p50 ms     p99 ms   times Java")
    base = 0.0
    for name, latencies in rounds.items():
        rates = [len(each) / load.seconds for each in latencies]
        rate = statistics.median(rates)
        p50, p99 = (
            statistics.median(percentile_ms(each, share) for each in latencies)
            for share in (0.5, 0.99)
        )
        base = base or rate or math.nan
        each_rate = " ".join(f"{each:,.0f}" for each in rates)
        print(
            f"{name:24} {rate:11,.0f}  {p50:9.2f}  {p99:9.2f}   {rate / base:10.2f}   "
            f"(rounds: {each_rate})",
            flush=True,
        )


def percentile_ms(latencies_s: Latencies, share: float) -> float:
    """Return a percentile of sorted latencies, in ms; NaN if there are none."""
    return latencies_s[int(len(latencies_s) * share)] * 1000 if latencies_s else math.nan


if __name__ == "__main__":
    main()
