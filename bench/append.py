"""How fast a group of three acknowledges appends: real nodes and a bare client on one machine.

    make bench                          or, for other loads:
    python -m bench.append --seconds 5 --body-bytes 1024 --in-flight 1 64 1000 --json figures.json

The members and the client share the machine's cores, disk and loopback. With SyncFlush an append is
acknowledged once a majority of the members, which need not include the leader, has made it durable
with fdatasync; with AsyncFlush, as in Java DLedger, once a majority has it in memory. The client is
the bare one of `bare_client.py`; `--client library` uses the Python client instead, and
`--client idempotent` the Python client with idempotent appends. Several clients take turns, each
with its own group, and their rates are compared by the medians of all rounds:

    python -m bench.append --client library idempotent --in-flight 1000 --rounds 5

Latency is the time from writing a request to reading its response. Before the loads, `floor.py`
measures the floor under the latency. The benchmark fails if a turn of a member's event loop took
too much of the processor (`turns.py`).
"""

import argparse
import dataclasses
import itertools
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import uvloop

from bench.bare_client import WARM_UP_S, Load, bare_load
from bench.floor import floor_ms
from bench.measured_group import measured_group
from bench.turns import LongTurns, turn_s_max
from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_formats.http.status import FlushDiskType
from tools.groups.node_group import NodeGroup
from tools.groups.turns import Turns, TurnWatch

HEADING = (
    "client      flush       in flight    appends/s     p50 ms     p99 ms   processor us an "
    "append: leader, followers   own and mapped MiB of each member"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The figures of one load."""

    client: str
    flush: str
    in_flight: int
    body_bytes: int
    appends_a_second: float
    p50_ms: float
    p99_ms: float
    leader_us: float
    """Processor time of the leader for one append; on a busy machine, steadier than a rate."""
    follower_us: float
    own_mib: list[int]
    """Each member's resident memory, without mapped files."""
    mapped_mib: list[int]
    """Each member's resident pages of mapped files, which the kernel may drop."""

    def row(self) -> str:
        """Return a line of the table."""
        memory = "  ".join(f"{a}+{b}" for a, b in zip(self.own_mib, self.mapped_mib, strict=True))
        return (
            f"{self.client:10}  {self.flush:10}  {self.in_flight:9}  "
            f"{self.appends_a_second:11,.0f}  {self.p50_ms:9.2f}  {self.p99_ms:9.2f}   "
            f"{self.leader_us:9.1f}  {self.follower_us:9.1f}   {memory}"
        )


def main() -> None:
    """Measure each load and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each load")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 64, 1000])
    parser.add_argument(
        "--flush", nargs="+", choices=list(FlushDiskType), default=list(FlushDiskType)
    )
    parser.add_argument(
        "--client", nargs="+", choices=["bare", "library", "idempotent"], default=["bare"]
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often each load is measured")
    parser.add_argument("--json", type=Path, help="a file to write the figures to")
    parser.add_argument(
        "--folder", help="where the members keep their logs (default: a temporary folder)"
    )
    arguments = parser.parse_args()
    print(
        f"3 members and the client on one machine: {os.cpu_count()} cores, {platform.machine()}, "
        f"Python {platform.python_version()}; bodies of {arguments.body_bytes} bytes, "
        f"{arguments.seconds:g} s each, {', '.join(arguments.client)} client; "
        f"load {os.getloadavg()[0]:.1f}"
    )
    sync_ms, trip_ms = floor_ms(arguments.seconds, arguments.folder)
    print(
        f"the bare machine: {sync_ms:.2f} ms to write and sync 1 KiB while two others do the "
        f"same, {trip_ms:.3f} ms for a loopback round trip: {sync_ms + trip_ms:.2f} ms (medians)\n"
        f"{HEADING}"
    )
    results, long_turns = [], LongTurns()
    loads = itertools.product(arguments.flush, arguments.in_flight)
    for flush, in_flight in loads:
        load = Load(in_flight=in_flight, body_bytes=arguments.body_bytes, seconds=arguments.seconds)
        of_load = []
        for client in arguments.client * arguments.rounds:
            result, turns = measure(FlushDiskType(flush), load, client, arguments.folder)
            of_load.append(result)
            print(result.row(), flush=True)
            long_turns.report(turns)
        compare(of_load)
        results += of_load
    if arguments.json:
        figures = [dataclasses.asdict(result) for result in results]
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    long_turns.judge()


def compare(results: list[Result]) -> None:
    """Print the median rate of each client under one load, if there are several rounds."""
    rates: dict[str, list[float]] = {}
    for result in results:
        rates.setdefault(result.client, []).append(result.appends_a_second)
    medians = {client: statistics.median(found) for client, found in rates.items()}
    first, first_rate = next(iter(medians.items()))
    if len(results) > 1:
        each = ", ".join(
            f"{client} {rate:,.0f}/s ({rate / first_rate:.2f} of {first})"
            for client, rate in medians.items()
        )
        print(f"  medians: {each}")


def measure(
    flush: FlushDiskType, load: Load, client: str, folder: str | None
) -> tuple[Result, list[Turns]]:
    """Start a group, put it under a load, and stop it."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as own_folder,
        measured_group(Path(own_folder), flush_disk_type=flush) as group,
    ):
        master = group.master()
        run = (
            bare_load(group.peers[master], "g", master, load)
            if client == "bare"
            else library_load(group, load, idempotent=client == "idempotent")
        )
        processes = [group.process_id(member) for member in group.peers]
        watch = TurnWatch(group, group.peers)
        before_s = [processor_s(process) for process in processes]
        latencies_s = sorted(uvloop.run(run))
        used_s = [
            processor_s(process) - before
            for process, before in zip(processes, before_s, strict=True)
        ]
        memory = [memory_mib(process) for process in processes]
        turns = watch.turns(turn_s_max(load.body_bytes))
    # The processor time includes the warm-up.
    appends = len(latencies_s) * (1 + WARM_UP_S / load.seconds)
    leader_s = used_s.pop(list(group.peers).index(master))
    result = Result(
        leader_us=leader_s / appends * 1e6,
        follower_us=sum(used_s) / len(used_s) / appends * 1e6,
        client=client,
        flush=flush,
        in_flight=load.in_flight,
        body_bytes=load.body_bytes,
        appends_a_second=len(latencies_s) / load.seconds,
        p50_ms=latencies_s[len(latencies_s) // 2] * 1000,
        p99_ms=latencies_s[int(len(latencies_s) * 0.99)] * 1000,
        own_mib=[own for own, _ in memory],
        mapped_mib=[mapped for _, mapped in memory],
    )
    return result, turns


async def library_load(group: NodeGroup, load: Load, *, idempotent: bool) -> list[float]:
    """Put a group under a load from the Python client; its own cost is part of the figures."""
    handed_s: list[float] = []
    latencies_s: list[float] = []
    begin_s = time.perf_counter() + WARM_UP_S
    end_s = begin_s + load.seconds
    body = os.urandom(load.body_bytes)

    def bodies() -> Iterator[bytes]:
        while (now_s := time.perf_counter()) < end_s:
            handed_s.append(now_s)
            yield body

    servers = group.servers
    async with DLedgerClient(servers=servers, group="g", idempotent=idempotent) as client:
        async for outcome in client.append_all(bodies(), in_flight=load.in_flight):
            if not isinstance(outcome, Acknowledged):
                raise SystemExit(f"an append was not acknowledged: {outcome}")
            now_s = time.perf_counter()
            if begin_s <= now_s < end_s:
                latencies_s.append(now_s - handed_s[outcome.number])
    return latencies_s


def processor_s(process_id: int) -> float:
    """Return the processor seconds that a process has used."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(process_id: int) -> tuple[int, int]:
    """Return the MiB of a process's anonymous memory, and of its mapped files."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    sizes = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
    return int(sizes["RssAnon"]) >> 10, int(sizes["RssFile"]) >> 10


if __name__ == "__main__":
    main()
