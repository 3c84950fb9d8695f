"""How fast clients read a log from its start: real nodes and the Python client on one machine.

    python -m bench.read                                 both loads, in all ways of WAYS
    python -m bench.read --entries 100000 --body-bytes 100

The three members and the client share the machine's cores, and the log is in the page cache. The
client checks the size and the checksum of every body. The processor time is that of all members,
and that of the leader alone. Several readers share the client's process. The benchmark fails if a
turn of a member's event loop took too much of the processor (`turns.py`).
"""

import argparse
import asyncio
import contextlib
import os
import platform
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from bench.append import processor_s
from bench.measured_group import measured_group
from bench.turns import LongTurns, turn_s_max
from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from tools.groups.node_group import NodeGroup
from tools.groups.turns import TurnWatch

LOADS: Final = ((500_000, 1024), (1_000_000, 8))
APPENDS: Final = 8192
"""Bodies that are appended at once before the measurement."""


class Pass(NamedTuple):
    """One read of the whole log."""

    seconds: float
    entries: int
    member_s: float
    """Processor seconds of all members."""
    leader_s: float
    client_s: float
    terms: int
    """Changes of term during the pass."""


async def fill(client: DLedgerClient, entries: int, body_bytes: int) -> None:
    """Append this many bodies."""
    for first in range(0, entries, APPENDS):
        count = min(APPENDS, entries - first)
        bodies = [os.urandom(body_bytes) for _ in range(count)]
        outcomes = await client.append_batch(bodies, deadline_s=60)
        if not all(isinstance(outcome, Acknowledged) for outcome in outcomes):
            raise SystemExit(f"an append was not acknowledged: {outcomes[0]}")


async def by_batches(client: DLedgerClient, last: int) -> int:
    """Read the log in batches; return the number of entries."""
    count = 0
    async for batch in client.read_batches(0, last):
        count += len(batch.bodies)
    return count


async def one_by_one(client: DLedgerClient, last: int) -> int:
    """Read the log with the asynchronous iterator; return the number of entries."""
    count = 0
    async for _ in client.get_range(0, last):
        count += 1
    return count


class Way(NamedTuple):
    """One way to read a log."""

    name: str
    read: Callable[[DLedgerClient, int], Awaitable[int]]
    read_from: str = "leader"
    readers: int = 1


WAYS: Final = (
    Way("by batches", by_batches),
    Way("one by one", one_by_one),
    Way("by batches", by_batches, "followers"),
    Way("by batches", by_batches, "leader", 3),
    Way("by batches", by_batches, "any", 3),
)


async def measure(group: NodeGroup, way: Way, entries: int) -> Pass:
    """Read the log once with each reader."""
    master = group.master()
    leader = group.process_id(master)
    processes = [group.process_id(member) for member in group.peers]
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                DLedgerClient(group.servers, "g", read_from=way.read_from)
            )
            for _ in range(way.readers)
        ]
        last = max([(await client.bounds()).end_index for client in clients])
        term = group.status(master).term
        members_s, own_s = sum(map(processor_s, processes)), time.process_time()
        leader_s, began_s = processor_s(leader), time.perf_counter()
        counts = await asyncio.gather(*(way.read(client, last) for client in clients))
        took_s = time.perf_counter() - began_s
        own_s = time.process_time() - own_s
        leader_s = processor_s(leader) - leader_s
        members_s = sum(map(processor_s, processes)) - members_s
        if set(counts) != {last + 1} or last + 1 < entries:
            raise SystemExit(f"{counts} entries were read, but the log ends with {last}")
        terms = group.status(group.master()).term - term
        return Pass(took_s, sum(counts), members_s, leader_s, own_s, terms)


async def measure_all(group: NodeGroup, entries: int, body_bytes: int, passes: int) -> None:
    """Fill a log and print a line for each pass."""
    async with DLedgerClient(group.servers, "g") as client:
        await fill(client, entries, body_bytes)
    for way in WAYS:
        for _ in range(passes):
            done = await measure(group, way, entries)
            print(
                f"{body_bytes:10}  {way.name:10}  {way.read_from:9}  {way.readers:7}  "
                f"{done.entries / done.seconds:12,.0f}  "
                f"{done.member_s / done.entries * 1e6:11.2f}  "
                f"{done.leader_s / done.entries * 1e6:11.2f}  "
                f"{done.client_s / done.entries * 1e6:11.2f}  {done.terms:15}",
                flush=True,
            )


def main() -> None:
    """Measure each load and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, help="entries of one load (default: both loads)")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--passes", type=int, default=3, help="reads of each log")
    parser.add_argument("--folder", help="where the members keep their logs")
    arguments = parser.parse_args()
    loads = ((arguments.entries, arguments.body_bytes),) if arguments.entries else LOADS
    print(
        f"3 members and the readers on one machine: {os.cpu_count()} cores, {platform.machine()}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}\n"
        "body bytes  read        from       readers     entries/s   members us    leader us    "
        "client us  changes of term"
    )
    long_turns = LongTurns()
    for entries, body_bytes in loads:
        with (
            tempfile.TemporaryDirectory(dir=arguments.folder) as folder,
            measured_group(Path(folder)) as group,
        ):
            watch = TurnWatch(group, group.peers)
            uvloop.run(measure_all(group, entries, body_bytes, arguments.passes))
            long_turns.report(watch.turns(turn_s_max(body_bytes)))
    long_turns.judge()


if __name__ == "__main__":
    main()
