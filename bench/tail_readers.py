"""The readers of `tails.py`: each process reads until it is told to stop."""

import asyncio
import contextlib
import dataclasses
import os
import struct
import time
from array import array
from contextlib import aclosing
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from typing import Final, NamedTuple, Self

import uvloop

from dledger_client.client import DLedgerClient

BODY_BYTES_MIN: Final = struct.calcsize("d")
"""A body begins with the time at which it was handed to the writer's client."""
TIMED_A_SECOND_MAX: Final = 50_000
"""If all tails together get more entries in a second, only a part of them is timed."""
PART: Final = 16
TIMES_MAX: Final = 20_000
"""Times of one process that are reported: these quantiles of all."""


class Load(NamedTuple):
    """The readers of one process."""

    tails: int
    from_start: int


class Priority(NamedTuple):
    """When a process gets the processor."""

    nice: int
    """19 is the lowest."""
    is_idle: bool
    """Whether it gets the processor only while no other process needs it."""

    def apply(self) -> None:
        """Give this process the priority."""
        if self.is_idle:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        else:
            os.nice(self.nice)


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
        """`total_rate` is how many entries all tails get in a second."""
        receiver, sender = context.Pipe(duplex=False)
        part = 1 if total_rate <= TIMED_A_SECOND_MAX else PART
        count = context.Value("q", 0, lock=False)
        return cls(context.Event(), stop, count, load, priority, receiver, sender, part)


def read_until(servers: list[str], reading: Reading) -> None:
    """Run the readers of one process until the benchmark stops them."""
    reading.priority.apply()
    times_s: array[float] = array("d")
    uvloop.run(_read_until(servers, reading, times_s))
    ordered_s = sorted(times_s)
    step = max(1, len(ordered_s) // TIMES_MAX)
    reading.sender.send(ordered_s[step // 2 :: step])


def use_processor(stop: Event, priority: Priority) -> None:
    """Use the processor until the benchmark stops this process."""
    priority.apply()
    while not stop.is_set():
        sum(range(100_000))


async def _read_until(servers: list[str], reading: Reading, times_s: "array[float]") -> None:
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(DLedgerClient(servers, "g"))
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
