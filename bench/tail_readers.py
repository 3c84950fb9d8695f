"""The readers of `tails.py`: each process reads until it is stopped."""

import asyncio
import contextlib
import dataclasses
import functools
import os
import struct
import time
from array import array
from contextlib import aclosing
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final, NamedTuple, Self

import uvloop

from bench.bare_readers import BareScan, BareTail
from bench.steady_appends import BODY_BYTES_MIN
from dledger_client.client import DLedgerClient
from dledger_formats.peers import split_address

TIMED_A_SECOND_MAX: Final = 50_000
"""If all tails together get more entries in a second, only a part of them is timed."""
PART: Final = 16
AUTOGROUP: Final = Path("/proc/self/autogroup")
TIMES_MAX: Final = 20_000
"""A process that has more times reports about this many quantiles of them."""


class Load(NamedTuple):
    """The readers of one process."""

    tails: int
    from_start: int


class Priority(NamedTuple):
    """The priority with which a process gets the processor."""

    nice: int
    """19 is the lowest."""
    cgroup: Path | None
    """The folder of a control group that it enters."""

    def apply(self) -> None:
        """Give this process the priority.

        Linux compares sessions before the processes in them (autogroups). So the process gets a
        session of its own with the same priority. Otherwise it would share that of the members, and
        delay the kernel's threads as they do.
        """
        os.nice(self.nice)
        os.setsid()
        if AUTOGROUP.exists():
            AUTOGROUP.write_text(str(self.nice))
        if self.cgroup is not None:
            (self.cgroup / "cgroup.procs").write_text("0")


class Source(NamedTuple):
    """What the readers read."""

    servers: list[str]
    leader_id: str
    leader_address: str
    body_bytes: int
    end_index: int
    """The last entry when they begin."""
    is_bare: bool
    """Whether they do almost nothing with the entries (`bare_readers.py`)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """What one process of readers shares with the benchmark."""

    ready: Event
    stop: Event
    entry_count: "Synchronized[int]"
    """The entries that its readers got."""
    load: Load
    priority: Priority
    receiver: "Connection[object, list[float]]"
    """Gets the times from append to delivery at the end."""
    sender: "Connection[list[float], object]"
    timed_part: int
    """One of so many entries is timed."""

    @classmethod
    def of(
        cls, context: SpawnContext, stop: Event, load: Load, priority: Priority, total_rate: int
    ) -> Self:
        """Create what is shared; `total_rate` is how many entries all tails get in a second."""
        receiver, sender = context.Pipe(duplex=False)
        part = 1 if total_rate <= TIMED_A_SECOND_MAX else PART
        count = context.Value("q", 0, lock=False)
        return cls(context.Event(), stop, count, load, priority, receiver, sender, part)


def read_until(source: Source, reading: Reading) -> None:
    """Run the readers of one process until the benchmark stops them."""
    reading.priority.apply()
    times_s: array[float] = array("d")
    run = _read_bare if source.is_bare else _read
    uvloop.run(run(source, reading, times_s))
    ordered_s = sorted(times_s)
    step = max(1, len(ordered_s) // TIMES_MAX)
    reading.sender.send(ordered_s[step // 2 :: step])


def use_processor(stop: Event, priority: Priority) -> None:
    """Use the processor until the benchmark stops this process."""
    priority.apply()
    while not stop.is_set():
        sum(range(100_000))


async def _read(source: Source, reading: Reading, times_s: "array[float]") -> None:
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(DLedgerClient(source.servers, "g"))
            for _ in range(reading.load.tails + reading.load.from_start)
        ]
        reads = [_tail(client, reading, times_s) for client in clients[: reading.load.tails]]
        reads += [_scan(client, reading) for client in clients[reading.load.tails :]]
        tasks = [asyncio.create_task(read) for read in reads]
        await asyncio.sleep(1)
        reading.ready.set()
        while not reading.stop.is_set():
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read_bare(source: Source, reading: Reading, times_s: "array[float]") -> None:
    leader_id, body_bytes, begin = source.leader_id, source.body_bytes, source.end_index + 1
    tail = functools.partial(BareTail, leader_id, body_bytes, begin, times_s)
    scan = functools.partial(BareScan, leader_id, body_bytes, 0, array("d"))
    kinds = [tail] * reading.load.tails + [scan] * reading.load.from_start
    host, port = split_address(source.leader_address)
    connect = asyncio.get_running_loop().create_connection
    readers = [(await connect(kind, host, port))[1] for kind in kinds]
    await asyncio.sleep(1)
    reading.ready.set()
    while not reading.stop.is_set():
        for reader in readers:
            if reader.error is not None:
                raise SystemExit(reader.error)
        reading.entry_count.value = sum(reader.entry_count for reader in readers)
        await asyncio.sleep(0.1)


async def _tail(client: DLedgerClient, reading: Reading, times_s: "array[float]") -> None:
    part = reading.timed_part
    async with aclosing(client.tail()) as entries:
        async for entry in entries:
            reading.entry_count.value += 1
            if entry.index % part == 0 and len(entry.body) >= BODY_BYTES_MIN:
                times_s.append(time.perf_counter() - struct.unpack_from("d", entry.body)[0])


async def _scan(client: DLedgerClient, reading: Reading) -> None:
    while True:
        async with aclosing(client.read_batches(0)) as batches:
            async for batch in batches:
                reading.entry_count.value += len(batch)
