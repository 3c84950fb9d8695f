"""The cost of readers for appends: many tailing readers, and one that reads from the start.

    python -m bench.tails                      100 tailing readers, 10,000 appends/s
    python -m bench.tails --readers 20 --rate 2000 --seconds 5

First only the appends, then appends and readers. Real members, the writer and the readers share the
machine's cores. So the readers run at the lowest priority, unless `--nice 0` is given: they take
the processor time that is left, and cost the appends what they cost the members. The table shows
how many entries they got. A reader from the start begins again when it has reached the end.
"""

import argparse
import asyncio
import dataclasses
import multiprocessing
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from bench.append import processor_s
from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from tools.groups.node_group import NodeGroup

PROCESSES: Final = 2
"""Processes that the tailing readers share."""
PACE_S: Final = 0.002
"""Interval at which bodies are handed to the client."""
LONGEST_TURN: Final = "dledger_node_loop_turn_processor_longest_seconds"


class Appends(NamedTuple):
    """The appends of one phase."""

    rate: float
    p50_ms: float
    p99_ms: float


async def append_for(group: NodeGroup, rate: int, body_bytes: int, seconds: float) -> Appends:
    """Append at a rate; return the latencies."""
    handed_s: list[float] = []
    latencies_s: list[float] = []
    body = os.urandom(body_bytes)

    async def bodies() -> AsyncIterator[bytes]:
        began_s = time.perf_counter()
        while (elapsed_s := time.perf_counter() - began_s) < seconds:
            while len(handed_s) < elapsed_s * rate:
                handed_s.append(time.perf_counter())
                yield body
            await asyncio.sleep(PACE_S)

    async with DLedgerClient(servers=group.servers, group="g") as client:
        async for outcome in client.append_all(bodies(), in_flight=8192):
            if not isinstance(outcome, Acknowledged):
                raise SystemExit(f"an append was not acknowledged: {outcome}")
            latencies_s.append(time.perf_counter() - handed_s[outcome.number])
    latencies_s.sort()
    return Appends(
        len(latencies_s) / seconds,
        latencies_s[len(latencies_s) // 2] * 1000,
        latencies_s[int(len(latencies_s) * 0.99)] * 1000,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """What one process of readers shares with this one."""

    ready: Event
    stop: Event
    entry_count: "Synchronized[int]"
    """The entries that its readers got."""
    nice: int
    """The processor priority of its readers, lowest at 19."""


def read_tails(servers: list[str], count: int, reading: Reading) -> None:
    """Tail the log with so many clients until they are stopped."""

    async def tail() -> None:
        async with DLedgerClient(servers, "g") as client:
            async for _ in client.tail():
                reading.entry_count.value += 1

    os.nice(reading.nice)
    uvloop.run(_until(reading, [tail for _ in range(count)]))


def read_from_start(servers: list[str], reading: Reading) -> None:
    """Read the log from its start, again and again, until it is stopped."""

    async def scan() -> None:
        async with DLedgerClient(servers, "g") as client:
            while True:
                async for batch in client.read_batches(0):
                    reading.entry_count.value += len(batch)

    os.nice(reading.nice)
    uvloop.run(_until(reading, [scan]))


async def _until(reading: Reading, reads: list[Callable[[], Coroutine[None, None, None]]]) -> None:
    tasks = [asyncio.create_task(read()) for read in reads]
    await asyncio.sleep(1)
    reading.ready.set()
    while not reading.stop.is_set():
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()


def longest_turn_ms(group: NodeGroup, member: str) -> float:
    """Return the processor time of the longest turn of a member's loop since its start."""
    _, page = group.get(member, "/metrics")
    lines = [line for line in page.decode().splitlines() if line.startswith(LONGEST_TURN)]
    return float(lines[0].split()[-1]) * 1000


def main() -> None:
    """Measure both phases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--readers", type=int, default=100, help="tailing readers")
    parser.add_argument("--rate", type=int, default=10_000, help="appends a second")
    parser.add_argument("--body-bytes", type=int, default=100)
    parser.add_argument("--nice", type=int, default=19, help="priority of the readers, 19 lowest")
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of each phase")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        NodeGroup(
            Path(folder),
            heartbeat_interval_ms=250,
            election_timeout_ms=1000,
            connections_per_address_max=500,
            segment_size_bytes=256 << 20,
            index_segment_size_bytes=40 << 20,
        ) as group,
    ):
        master = group.master()
        term = group.status(master).term
        stop = context.Event()
        readings = [
            Reading(context.Event(), stop, context.Value("q", 0, lock=False), arguments.nice)
            for _ in range(PROCESSES + 1)
        ]
        count, servers = arguments.readers // PROCESSES, list(group.servers)
        readers = [
            context.Process(target=read_tails, args=(servers, count, reading), daemon=True)
            for reading in readings[:-1]
        ]
        readers.append(
            context.Process(target=read_from_start, args=(servers, readings[-1]), daemon=True)
        )
        print(
            "phase             appends/s   p50 ms   p99 ms   leader's longest turn ms   "
            "leader's processor   entries/s of all tails   of the other"
        )
        for name in ("without readers", "with readers"):
            if name == "with readers":
                for process, reading in zip(readers, readings, strict=True):
                    process.start()
                    reading.ready.wait()
            before = [reading.entry_count.value for reading in readings]
            used_s = processor_s(group.process_id(master))
            done = uvloop.run(
                append_for(group, arguments.rate, arguments.body_bytes, arguments.seconds)
            )
            used_s = processor_s(group.process_id(master)) - used_s
            got = [
                (reading.entry_count.value - count) / arguments.seconds
                for reading, count in zip(readings, before, strict=True)
            ]
            print(
                f"{name:16}  {done.rate:9,.0f}  {done.p50_ms:7.2f}  {done.p99_ms:7.2f}  "
                f"{longest_turn_ms(group, master):25.2f}  {used_s / arguments.seconds:19.2f}  "
                f"{sum(got[:-1]):23,.0f}  {got[-1]:13,.0f}",
                flush=True,
            )
        stop.set()
        for process in readers:
            process.join(10)
            if process.exitcode != 0:
                raise SystemExit(f"a reader ended with {process.exitcode}")
        print(f"changes of term: {group.status(group.master()).term - term}")


if __name__ == "__main__":
    main()
