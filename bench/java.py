"""Java DLedger and this node under the same load: same client, same bodies, one run.

    make bench-java                     or, for other loads:
    python bench/java.py --rounds 3 --seconds 4 --body-bytes 1024 --in-flight 1 64 1000

Every group has three members, and all groups stay up for the whole run, so that the JVMs are warm;
those that are not measured idle meanwhile. In each round every group is measured once, in turn, so
that what else the machine does hits all alike. The figures are medians over the rounds. An append
that is not acknowledged ends the run: Java answers 502 when it is slow.

Java acknowledges what a majority has in memory, so it is compared with AsyncFlush, which does the
same, and with SyncFlush, the default, which also waits for an fdatasync.
"""

import argparse
import contextlib
import math
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvloop
from append import Load, bare_load  # bench/append.py

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "lib"))
from dledger_formats.status import FlushDiskType
from dledger_group.group import NodeGroup
from dledger_java.group import JavaGroup
from tools import java_dledger

JAVA_VERSION = "0.3.1.2"
JVM_OPTIONS = ("-Xmx1g",)
WARM_UP_IN_FLIGHT = 64
PYTHON_OPTIONS = {
    "heartbeat_interval_ms": 250,
    "election_timeout_ms": 1000,
    "segment_size_bytes": 256 << 20,
    "index_segment_size_bytes": 40 << 20,
}
JAVA_OPTIONS = {
    "heartBeatTimeIntervalMs": 2000,
    "mappedFileSizeForEntryData": 256 << 20,
    "mappedFileSizeForEntryIndex": 40 << 20,
}


@dataclass(frozen=True, slots=True)
class Contender:
    """One group of three, and what it is called in the table."""

    name: str
    group: NodeGroup | JavaGroup


def main() -> None:
    """Measure every load with every group and print a table with the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each load runs")
    parser.add_argument("--warm-up", type=float, default=15.0, help="seconds, once for each group")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 64, 1000])
    parser.add_argument("--folder", help="where the members keep their logs (a temporary folder)")
    arguments = parser.parse_args()
    print(
        f"groups of 3 and the client on one machine: {os.cpu_count()} cores, "
        f"{platform.machine()}, Python {platform.python_version()}; bodies of "
        f"{arguments.body_bytes} bytes, {arguments.rounds} rounds of {arguments.seconds:g} s; "
        f"load average at the start {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    with (
        tempfile.TemporaryDirectory(dir=arguments.folder) as folder,
        started(Path(folder)) as contenders,
    ):
        warm_up = Load(
            in_flight=WARM_UP_IN_FLIGHT, body_bytes=arguments.body_bytes, seconds=arguments.warm_up
        )
        for contender in contenders:
            measure(contender, warm_up)
        for in_flight in arguments.in_flight:
            load = Load(
                in_flight=in_flight, body_bytes=arguments.body_bytes, seconds=arguments.seconds
            )
            rounds: dict[str, list[list[float]]] = {each.name: [] for each in contenders}
            for _ in range(arguments.rounds):
                for contender in contenders:
                    rounds[contender.name].append(measure(contender, load))
            print_table(load, rounds)


@contextlib.contextmanager
def started(folder: Path) -> Iterator[list[Contender]]:
    """Start every group."""
    class_path = java_dledger.build(JAVA_VERSION)
    with contextlib.ExitStack() as groups:
        contenders: list[Contender] = []
        for name, options in (
            (f"Java {JAVA_VERSION}", {}),
            (f"Java {JAVA_VERSION}, batch push", {"enableBatchPush": True}),
        ):
            at = folder / f"group{len(contenders)}"
            at.mkdir()
            java = JavaGroup(at, class_path, jvm_options=JVM_OPTIONS, **JAVA_OPTIONS, **options)
            contenders.append(Contender(name, groups.enter_context(java)))
        for flush in (FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH):
            at = folder / f"group{len(contenders)}"
            at.mkdir()
            python = NodeGroup(at, flush_disk_type=flush, **PYTHON_OPTIONS)
            contenders.append(Contender(f"Python, {flush}", groups.enter_context(python)))
            python.master()
        yield contenders


def measure(contender: Contender, load: Load) -> list[float]:
    """Put a group's leader under a load; the latencies in seconds, sorted."""
    group = contender.group
    leader_id = group.master() if isinstance(group, NodeGroup) else group.leader()
    return sorted(uvloop.run(bare_load(group.peers[leader_id], "g", leader_id, load)))


def print_table(load: Load, rounds: dict[str, list[list[float]]]) -> None:
    """Print one load's lines; the ratios are to Java as it comes."""
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


def percentile_ms(latencies_s: list[float], share: float) -> float:
    """A latency that this share of the appends did not exceed; NaN when there were none."""
    return latencies_s[int(len(latencies_s) * share)] * 1000 if latencies_s else math.nan


if __name__ == "__main__":
    main()
