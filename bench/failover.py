"""How long appends pause when leaders fail, and whether any acknowledged append is lost.

    make bench-failover                 or, for other numbers:
    python -m bench.failover --faults kill transfer --rounds 100 --per-second 500

The group has three members with the default timers, each in its own network namespace. A client
that follows leader hints appends at a steady rate, without waiting for responses. In each round the
current leader suffers a fault. Once another member leads, the fault is undone, and the round ends
when all members are ready. The round's gap is the longest pause between two acknowledgements during
the round, including the return of the old leader. The client can always reach every member.

    kill      SIGKILL, then a restart        cut-out   packets from the leader are dropped
    freeze    SIGSTOP, then SIGCONT          cut-in    packets to the leader are dropped
    transfer  a leadership transfer          cut-both  both

After the rounds of each fault the whole log is read. Every acknowledged append must be at its index
with its bytes, no append may occur twice, and all members must hold the same bytes. The exit code
is 1 if any of this is violated. Needs root, for the network namespaces.
"""

import argparse
import asyncio
import dataclasses
import hashlib
import json
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final

import uvloop

from bench.disk_load import disk_load
from bench.failover_faults import suffer, views, wait_until_in_order
from bench.failover_load import Load
from dledger_client.client import DLedgerClient
from dledger_formats.log import disk
from tools.groups.namespaces import CuttableGroup, enter_own_namespaces, lay_network
from tools.groups.waiting import wait_for

GROUP_SETTINGS: Final = {
    "heartbeat_interval_ms": 250,
    "election_timeout_ms": 1000,
    "segment_size_bytes": 16 << 20,
    "index_segment_size_bytes": 4 << 20,
}
STEADY_APPENDS: Final = 200
"""Appends acknowledged before each fault and after it, so that every pause has two ends."""
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
    """The figures of all rounds of one fault."""

    fault: str
    gaps_ms: list[float] = dataclasses.field(default_factory=list)
    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    broken: int = 0
    """Acknowledged appends missing from their index, appends that occur twice, and members whose
    bytes differ.
    """

    def row(self) -> str:
        """Return a line of the table."""
        gaps = sorted(self.gaps_ms)
        p50, p99 = statistics.median(gaps), gaps[int(len(gaps) * 0.99)]
        return (
            f"{self.fault:9} {len(gaps):6} {self.acknowledged:13,} {self.unknown:8,} "
            f"{self.refused:8,} {self.broken:7} {p50:8.0f} {p99:8.0f} {gaps[-1]:8.0f}"
        )


def main() -> int:
    """Run the rounds of every fault; return 1 if a log was broken."""
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
    with (
        tempfile.TemporaryDirectory(dir=arguments.folder) as folder,
        disk_load(Path(folder), arguments.disk_writers),
    ):
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
    parser.add_argument(
        "--rounds", type=int, help="rounds of each fault (default: 100, or 25 for the slow faults)"
    )
    parser.add_argument("--per-second", type=int, default=1000, help="appends started per second")
    parser.add_argument(
        "--disk-writers", type=int, default=0, help="processes that keep the disk busy meanwhile"
    )
    parser.add_argument("--json", type=Path, help="a file to write the figures to")
    parser.add_argument(
        "--folder", help="where the members keep their logs (default: a temporary folder)"
    )
    return parser.parse_args()


async def _campaign(group: CuttableGroup, fault: str, rounds: int, per_second: int) -> Result:
    result = Result(fault=fault)
    async with DLedgerClient(group.servers, "g") as client:
        load = Load(client, per_second)
        async with load.running():
            leader = await asyncio.to_thread(wait_until_in_order, group)
            await load.more(STEADY_APPENDS)
            for _ in range(rounds):
                first = len(load.acknowledged_s) - 1
                await asyncio.to_thread(suffer, group, fault, leader)
                leader = await asyncio.to_thread(wait_until_in_order, group)
                await load.more(STEADY_APPENDS)
                result.gaps_ms.append(1000 * load.longest_pause_s(first))
        result.acknowledged = len(load.acknowledged)
        result.unknown, result.refused = load.unknown, load.refused
        result.broken = await _lost_moved_or_doubled(client, load)
    result.broken += await asyncio.to_thread(_differing_members, group)
    return result


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
    """Count the members whose logs differ from the first one's, once all have the same end."""

    def have_equal_ends() -> bool:
        found = views(group, list(group.peers))
        return len({(view.committed_index, view.ledger_end_index) for view in found}) == 1

    wait_for(have_equal_ends, "all members have committed the same entries")
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
