"""How long appends pause when a leader fails, again and again, and whether anything is lost by it.

    make bench-failover                 or, for other numbers:
    python bench/failover.py --faults kill transfer --rounds 100 --per-second 500

A group of three with the default timers, each member a host on a network of its own. A client that
follows hints appends at a steady rate, without waiting for answers. In each round the leader of the
moment suffers a fault; once another leads, the fault is undone, and the round ends when all members
are in order. Its gap is the longest pause between two acknowledgements in all that time, the return
of the old leader included. The client reaches every member all the time.

    kill      SIGKILL, and a new start       cut-out   nothing that it sends reaches the others
    freeze    SIGSTOP, and SIGCONT           cut-in    nothing that the others send reaches it
    transfer  it hands its leadership over   cut-both  both

At the end of each fault's rounds the whole log is read: every acknowledged append must be at its
index with its bytes, no append may be there twice, and all members must hold the same bytes. The
exit code says whether that was so. Needs root, for the network.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import hashlib
import http.client
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

import uvloop

from dledger_client.client import DLedgerClient
from dledger_client.errors import ClientError, OutcomeUnknownError
from dledger_client.sync import BlockingClient
from dledger_formats.http.status import NodeStatus
from dledger_formats.log import disk

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "lib"))
from dledger_group.namespaces import CuttableGroup, enter_own_namespaces, lay_network
from dledger_group.waiting import wait_for

GROUP_SETTINGS: Final = {
    "heartbeat_interval_ms": 250,
    "election_timeout_ms": 1000,
    "segment_size_bytes": 16 << 20,
    "index_segment_size_bytes": 4 << 20,
}
PACE_S: Final = 0.005
UNANSWERED_MAX: Final = 20_000
"""Appends on their way at once; more are not begun, so that a long gap has a bound too."""
STEADY_APPENDS: Final = 200
"""So many are acknowledged before a fault and after it, so that a pause has both its ends."""
ROUNDS: Final = {
    "kill": 100,
    "transfer": 100,
    "freeze": 25,
    "cut-out": 25,
    "cut-in": 25,
    "cut-both": 25,
}


@dataclasses.dataclass(slots=True, kw_only=True)
class Result:
    """What the rounds of one fault came to."""

    fault: str
    gaps_ms: list[float] = dataclasses.field(default_factory=list)
    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    broken: int = 0
    """Acknowledged appends that are not at their index, appends that are in the log twice, and
    members whose bytes differ.
    """

    def row(self) -> str:
        """A line of the table."""
        gaps = sorted(self.gaps_ms)
        p50, p99 = statistics.median(gaps), gaps[int(len(gaps) * 0.99)]
        return (
            f"{self.fault:9} {len(gaps):6} {self.acknowledged:13,} {self.unknown:8,} "
            f"{self.refused:8,} {self.broken:7} {p50:8.0f} {p99:8.0f} {gaps[-1]:8.0f}"
        )


class Load:
    """Appends at a steady rate, whatever becomes of those before."""

    def __init__(self, client: DLedgerClient, per_second: int) -> None:
        self._client = client
        self._per_second = per_second
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_acknowledged = asyncio.Event()
        self._number = 0
        self.acknowledged: list[tuple[int, int]] = []
        """Number and index."""
        self.acknowledged_s: list[float] = []
        self.unknown = 0
        self.refused = 0

    @staticmethod
    def body(number: int) -> bytes:
        """The body of the append with this number."""
        return (b"record %d " % number).ljust(200, b".")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Append until the block ends; then wait for what is still on its way."""
        pacer = asyncio.create_task(self._pace())
        try:
            yield
        finally:
            pacer.cancel()
            await asyncio.gather(*self._tasks)

    async def more(self, count: int) -> None:
        """Wait until so many more appends are acknowledged."""
        goal = len(self.acknowledged) + count
        while len(self.acknowledged) < goal:
            self._is_acknowledged.clear()
            await self._is_acknowledged.wait()

    def longest_pause_s(self, first: int) -> float:
        """The longest pause between two acknowledgements from the one with this number on."""
        return max((b - a for a, b in pairwise(self.acknowledged_s[first:])), default=0.0)

    async def _pace(self) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        begun = 0
        while True:
            due = int((loop.time() - began_s) * self._per_second)
            for _ in range(min(due - begun, UNANSWERED_MAX - len(self._tasks))):
                task = loop.create_task(self._append(self._number))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                self._number += 1
            begun = due
            await asyncio.sleep(PACE_S)

    async def _append(self, number: int) -> None:
        try:
            appended = await self._client.append(self.body(number))
        except OutcomeUnknownError:
            self.unknown += 1
        except ClientError:
            self.refused += 1
        else:
            self.acknowledged.append((number, appended.index))
            self.acknowledged_s.append(time.monotonic())
            self._is_acknowledged.set()


def main() -> int:
    """Run every fault's rounds; 1 when something was lost."""
    arguments = _arguments()
    enter_own_namespaces()
    print(
        f"3 members and the client on one machine: {os.cpu_count()} cores, {platform.machine()}, "
        f"Python {platform.python_version()}; {arguments.per_second} appends a second, load "
        f"average at the start {os.getloadavg()[0]:.1f}\n"
        "fault     rounds  acknowledged  unknown  refused  broken   p50 ms   p99 ms   max ms",
        flush=True,
    )
    results = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        lay_network()
        for fault in arguments.faults:
            own_folder = Path(folder, fault)
            own_folder.mkdir()
            with CuttableGroup(own_folder, **GROUP_SETTINGS) as group:
                rounds = arguments.rounds or ROUNDS[fault]
                results.append(uvloop.run(_campaign(group, fault, rounds, arguments.per_second)))
            print(results[-1].row(), flush=True)
    if arguments.json:
        figures = [dataclasses.asdict(result) for result in results]
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 1 if any(result.broken for result in results) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", nargs="+", choices=list(ROUNDS), default=list(ROUNDS))
    parser.add_argument("--rounds", type=int, help="of each fault (100, and 25 of the slow ones)")
    parser.add_argument("--per-second", type=int, default=1000, help="appends begun")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--folder", help="where the members keep their logs (a temporary folder)")
    return parser.parse_args()


async def _campaign(group: CuttableGroup, fault: str, rounds: int, per_second: int) -> Result:
    result = Result(fault=fault)
    async with DLedgerClient(group.servers, "g") as client:
        load = Load(client, per_second)
        async with load.running():
            leader = await asyncio.to_thread(_wait_until_in_order, group)
            await load.more(STEADY_APPENDS)
            for _ in range(rounds):
                first = len(load.acknowledged_s) - 1
                await asyncio.to_thread(_suffer, group, fault, leader)
                leader = await asyncio.to_thread(_wait_until_in_order, group)
                await load.more(STEADY_APPENDS)
                result.gaps_ms.append(1000 * load.longest_pause_s(first))
        result.acknowledged = len(load.acknowledged)
        result.unknown, result.refused = load.unknown, load.refused
        result.broken = await _lost_moved_or_doubled(client, load)
    result.broken += await asyncio.to_thread(_differing_members, group)
    return result


# -- faults -------------------------------------------------------------------------------------

Fault: TypeAlias = Callable[[CuttableGroup, str], AbstractContextManager[None]]


def _suffer(group: CuttableGroup, fault: str, leader: str) -> None:
    """Let the leader fail until another leads, and be well again."""
    with FAULTS[fault](group, leader):
        _wait_for_leader_among(group, [member for member in group.peers if member != leader])


@contextlib.contextmanager
def _kill(group: CuttableGroup, leader: str) -> Iterator[None]:
    group.kill(leader)
    yield
    group.start(leader)


@contextlib.contextmanager
def _freeze(group: CuttableGroup, leader: str) -> Iterator[None]:
    group.freeze(leader)
    yield
    group.thaw(leader)


@contextlib.contextmanager
def _transfer(group: CuttableGroup, leader: str) -> Iterator[None]:
    successor = next(member for member in group.peers if member != leader)
    with BlockingClient(group.servers, "g") as client:
        client.transfer(successor)
    yield


def _cut(*, out: bool, into: bool) -> Fault:
    @contextlib.contextmanager
    def cut(group: CuttableGroup, leader: str) -> Iterator[None]:
        others = [member for member in group.peers if member != leader]
        with contextlib.ExitStack() as cuts:
            if out:
                cuts.enter_context(group.cut([leader], others))
            if into:
                cuts.enter_context(group.cut(others, [leader]))
            yield

    return cut


FAULTS: Final[dict[str, Fault]] = {
    "kill": _kill,
    "transfer": _transfer,
    "freeze": _freeze,
    "cut-out": _cut(out=True, into=False),
    "cut-in": _cut(out=False, into=True),
    "cut-both": _cut(out=True, into=True),
}


# -- what the members say ------------------------------------------------------------------------


def _wait_for_leader_among(group: CuttableGroup, members: list[str]) -> str:
    """Wait until one of these members leads and all of them say so; return its id."""

    def agreed() -> str | None:
        views = _views(group, members)
        leaders = {view.leader_id for view in views}
        masters = {view.self_id for view in views if view.master}
        agree = len(views) == len(members) and len(leaders) == 1 and leaders == masters
        return masters.pop() if agree else None

    return wait_for(agreed, f"one of {members} leads")


def _wait_until_in_order(group: CuttableGroup) -> str:
    """Wait until every member is ready and follows the one leader; return its id."""

    def ready() -> str | None:
        leader = _wait_for_leader_among(group, list(group.peers))
        is_ready = all(view.ready for view in _views(group, list(group.peers)))
        return leader if is_ready else None

    return wait_for(ready, "all members are ready")


def _views(group: CuttableGroup, members: list[str]) -> list[NodeStatus]:
    views = []
    for member in members:
        with contextlib.suppress(OSError, http.client.HTTPException):
            views.append(group.status(member))
    return views


# -- what the log says ---------------------------------------------------------------------------


async def _lost_moved_or_doubled(client: DLedgerClient, load: Load) -> int:
    bodies: dict[int, bytes] = {}
    async for entry in client.get_range(0):
        if entry.magic == disk.NORMAL:
            bodies[entry.index] = entry.body
    lost_or_moved = sum(
        bodies.get(index) != load.body(number) for number, index in load.acknowledged
    )
    return lost_or_moved + len(bodies) - len(set(bodies.values()))


def _differing_members(group: CuttableGroup) -> int:
    """How many members' logs are not as the first one's, once all have committed all."""

    def ends() -> bool:
        views = _views(group, list(group.peers))
        return len({(view.committed_index, view.ledger_end_index) for view in views}) == 1

    wait_for(ends, "all members have committed the same")
    digests = {member: _digest(group, member) for member in group.peers}
    return sum(digest != digests["n0"] for digest in digests.values())


def _digest(group: CuttableGroup, member: str) -> str:
    digest = hashlib.sha256()
    for segment in group.manifest(member).data:
        headers = {"Range": f"bytes=0-{segment.readable_bytes - 1}"}
        digest.update(group.get(member, f"/segments/data/{segment.name}", headers)[1])
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
