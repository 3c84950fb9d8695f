"""How fast a group of three acknowledges appends: real nodes, a real client, one machine.

    make bench                          or, for other loads:
    python bench/append.py --seconds 5 --body-bytes 1024 --in-flight 1 64 1000

Members and client run on this machine and share its cores, its disk and its loopback. With
SyncFlush an append is acknowledged once a majority of the members, the leader among them or not,
has it behind an fdatasync. Latency is from handing a body to the client until its outcome is known.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import uvloop

from dledger_client.client import DLedgerClient
from dledger_client.outcomes import Acknowledged
from dledger_formats.status import FlushDiskType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "lib"))
from dledger_group.group import NodeGroup

WARM_UP_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One load's figures."""

    in_flight: int
    acknowledged: int
    not_acknowledged: int
    seconds: float
    latencies_s: list[float]
    resident_bytes: dict[str, int]

    def row(self) -> str:
        """A line of the table."""
        ordered = sorted(self.latencies_s)
        p50, p99 = (ordered[int(len(ordered) * share)] * 1000 for share in (0.5, 0.99))
        resident = "  ".join(f"{size / 2**20:5.0f}" for size in self.resident_bytes.values())
        rate = self.acknowledged / self.seconds
        return f"{self.in_flight:9}  {rate:11,.0f}  {p50:9.2f}  {p99:9.2f}   {resident}"


def main() -> None:
    """Measure each load and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each load runs")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 64, 1000])
    parser.add_argument("--flush", choices=list(FlushDiskType), default=FlushDiskType.SYNC_FLUSH)
    parser.add_argument("--folder", help="where the members keep their logs (a temporary folder)")
    arguments = parser.parse_args()
    print(
        f"3 members and the client on one machine: {os.cpu_count()} cores, {platform.machine()}, "
        f"Python {platform.python_version()}; {arguments.flush}, bodies of "
        f"{arguments.body_bytes} bytes, {arguments.seconds:g} s each"
    )
    print("in flight    appends/s     p50 ms     p99 ms   resident MiB of n0, n1, n2 (*)")
    for in_flight in arguments.in_flight:
        with (
            tempfile.TemporaryDirectory(dir=arguments.folder) as folder,
            NodeGroup(
                Path(folder),
                heartbeat_interval_ms=250,
                election_timeout_ms=1000,
                flush_disk_type=FlushDiskType(arguments.flush),
                segment_size_bytes=256 << 20,
                index_segment_size_bytes=40 << 20,
            ) as group,
        ):
            group.master()
            result = uvloop.run(load(group, in_flight, arguments.body_bytes, arguments.seconds))
            if result.not_acknowledged:
                raise SystemExit(
                    f"{result.not_acknowledged} appends were not acknowledged: this is no "
                    "measurement any more"
                )
            print(result.row(), flush=True)
    print("(*) the log's pages in memory, which the kernel may drop, are counted too")


class Group(Protocol):
    """A group whose members are processes of this machine."""

    peers: dict[str, str]

    @property
    def servers(self) -> list[str]:
        """Every member's address."""

    def process_id(self, member: str) -> int:
        """Process id of a running member."""


async def load(group: Group, in_flight: int, body_bytes: int, seconds: float) -> Result:
    """Keep `in_flight` appends on their way for `seconds`, after a warm-up."""
    not_acknowledged = 0
    handed_s: list[float] = []
    latencies_s: list[float] = []
    begin_s = time.perf_counter() + WARM_UP_S
    end_s = begin_s + seconds
    body = os.urandom(body_bytes)

    def bodies() -> Iterator[bytes]:
        while (now_s := time.perf_counter()) < end_s:
            handed_s.append(now_s)
            yield body

    async with DLedgerClient(servers=group.servers, group="g") as client:
        async for outcome in client.append_all(bodies(), in_flight=in_flight):
            if not isinstance(outcome, Acknowledged):
                not_acknowledged += 1
                continue
            now_s = time.perf_counter()
            if begin_s <= now_s < end_s:
                latencies_s.append(now_s - handed_s[outcome.number])
    return Result(
        in_flight=in_flight,
        acknowledged=len(latencies_s),
        not_acknowledged=not_acknowledged,
        seconds=seconds,
        latencies_s=latencies_s,
        resident_bytes={member: resident_bytes(group, member) for member in group.peers},
    )


def resident_bytes(group: Group, member: str) -> int:
    """A member's resident memory, its mapped log included."""
    status = Path(f"/proc/{group.process_id(member)}/status").read_text().splitlines()
    line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
