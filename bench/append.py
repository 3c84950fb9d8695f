"""How fast a group of three acknowledges appends: real nodes, a bare client, one machine.

    make bench                          or, for other loads:
    python bench/append.py --seconds 5 --body-bytes 1024 --in-flight 1 64 1000 --json figures.json

Members and client run on this machine and share its cores, its disk and its loopback. With
SyncFlush an append is acknowledged once a majority of the members, the leader among them or not,
has it behind an fdatasync; with AsyncFlush, as in Java DLedger, once they have it in memory. The
client keeps a number of appends in flight on one connection to the leader. It sends frames that
were made before and does little else (`--client library` takes the Python client instead, and
`idempotent` the same with appends that may be sent again), so that what is measured is the group.
Latency is from writing a request to reading its answer; before all loads, the floor under it is
measured (`floor.py`).
"""

import argparse
import asyncio
import base64
import dataclasses
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import uvloop

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_formats.http.status import FlushDiskType
from dledger_formats.protocol.requests import RequestCode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "lib"))
from floor import floor_ms

from dledger_group.group import NodeGroup

WARM_UP_S: Final = 1.0
HEADING = (
    "flush       in flight    appends/s     p50 ms     p99 ms   processor us an append: leader, "
    "followers   own and mapped MiB of each member"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked of a group."""

    in_flight: int
    body_bytes: int
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One load's figures."""

    flush: str
    in_flight: int
    body_bytes: int
    appends_a_second: float
    p50_ms: float
    p99_ms: float
    leader_us: float
    """Processor time of the leader for one append: steadier than a rate, on a busy machine."""
    follower_us: float
    own_mib: list[int]
    """Each member's memory without mapped files."""
    mapped_mib: list[int]
    """The log's pages in memory, which the kernel may drop."""

    def row(self) -> str:
        """A line of the table."""
        memory = "  ".join(f"{a}+{b}" for a, b in zip(self.own_mib, self.mapped_mib, strict=True))
        return (
            f"{self.flush:10}  {self.in_flight:9}  {self.appends_a_second:11,.0f}  "
            f"{self.p50_ms:9.2f}  {self.p99_ms:9.2f}   {self.leader_us:9.1f}  "
            f"{self.follower_us:9.1f}   {memory}"
        )


def main() -> None:
    """Measure each load and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each load runs")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 64, 1000])
    parser.add_argument(
        "--flush", nargs="+", choices=list(FlushDiskType), default=list(FlushDiskType)
    )
    parser.add_argument("--client", choices=["bare", "library", "idempotent"], default="bare")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--folder", help="where the members keep their logs (a temporary folder)")
    arguments = parser.parse_args()
    print(
        f"3 members and the client on one machine: {os.cpu_count()} cores, {platform.machine()}, "
        f"Python {platform.python_version()}; bodies of {arguments.body_bytes} bytes, "
        f"{arguments.seconds:g} s each, {arguments.client} client"
    )
    sync_ms, trip_ms = floor_ms(arguments.seconds, arguments.folder)
    print(
        f"the bare machine: {sync_ms:.2f} ms to write and sync 1 KiB while two others do, "
        f"{trip_ms:.3f} ms there and back over loopback: {sync_ms + trip_ms:.2f} ms, medians\n"
        f"{HEADING}"
    )
    results = []
    for flush in arguments.flush:
        for in_flight in arguments.in_flight:
            load = Load(
                in_flight=in_flight, body_bytes=arguments.body_bytes, seconds=arguments.seconds
            )
            results.append(measure(FlushDiskType(flush), load, arguments.client, arguments.folder))
            print(results[-1].row(), flush=True)
    if arguments.json:
        figures = [dataclasses.asdict(result) for result in results]
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def measure(flush: FlushDiskType, load: Load, client: str, folder: str | None) -> Result:
    """Start a group, put it under a load, and stop it."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as own_folder,
        NodeGroup(
            Path(own_folder),
            heartbeat_interval_ms=250,
            election_timeout_ms=1000,
            flush_disk_type=flush,
            segment_size_bytes=256 << 20,
            index_segment_size_bytes=40 << 20,
        ) as group,
    ):
        master = group.master()
        run = (
            bare_load(group.peers[master], "g", master, load)
            if client == "bare"
            else library_load(group, load, idempotent=client == "idempotent")
        )
        processes = [group.process_id(member) for member in group.peers]
        before_s = [processor_s(process) for process in processes]
        latencies_s = sorted(uvloop.run(run))
        used_s = [
            processor_s(process) - before
            for process, before in zip(processes, before_s, strict=True)
        ]
        memory = [memory_mib(process) for process in processes]
    # The warm-up costs the members time too.
    appends = len(latencies_s) * (1 + WARM_UP_S / load.seconds)
    leader_s = used_s.pop(list(group.peers).index(master))
    return Result(
        leader_us=leader_s / appends * 1e6,
        follower_us=sum(used_s) / len(used_s) / appends * 1e6,
        flush=flush,
        in_flight=load.in_flight,
        body_bytes=load.body_bytes,
        appends_a_second=len(latencies_s) / load.seconds,
        p50_ms=latencies_s[len(latencies_s) // 2] * 1000,
        p99_ms=latencies_s[int(len(latencies_s) * 0.99)] * 1000,
        own_mib=[own for own, _ in memory],
        mapped_mib=[mapped for _, mapped in memory],
    )


async def bare_load(address: str, group: str, member_id: str, load: Load) -> list[float]:
    """Put a leader, Python's or Java's, under a load; the latencies of all but the warm-up, in s.

    SystemExit when an append is not acknowledged: then the figures would mean nothing.
    """
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(
        lambda: BareClient(group, member_id, load), host, int(port)
    )
    await client.done
    return client.latencies_s


class BareClient(asyncio.Protocol):
    """Sends prepared frames; ten digits of `opaque` are all that differs between them."""

    FIRST_OPAQUE: Final = 1_000_000_000

    def __init__(self, group: str, member_id: str, load: Load) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self.latencies_s: list[float] = []
        body = json.dumps(
            {
                "body": base64.b64encode(os.urandom(load.body_bytes)).decode(),
                "code": 200, "group": group, "remoteId": member_id, "term": -1,
            },
            separators=(",", ":"),
        ).encode()  # fmt: skip
        before = b'{"code":%d,"flag":0,"language":"JAVA","opaque":' % RequestCode.APPEND
        after = b',"serializeTypeCurrentRPC":"JSON","version":0}'
        header_bytes = len(before) + 10 + len(after)
        lengths = (4 + header_bytes + len(body)).to_bytes(4, "big") + header_bytes.to_bytes(
            4, "big"
        )
        self._before, self._after = lengths + before, after + body
        self._in_flight = load.in_flight
        self._begin_s = time.perf_counter() + WARM_UP_S
        self._end_s = self._begin_s + load.seconds
        self._sent_s: dict[int, float] = {}
        self._opaque = self.FIRST_OPAQUE
        self._pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Fill the window."""
        self._transport = cast("asyncio.Transport", transport)
        self._send(self._in_flight)

    def data_received(self, data: bytes) -> None:
        """Note what was acknowledged, and send as many again."""
        now_s = time.perf_counter()
        counts = self._begin_s <= now_s < self._end_s
        answered = 0
        for frame in self._frames(data):
            at = frame.index(b'"opaque":') + 9
            sent_s = self._sent_s.pop(int(frame[at : at + 10]))
            if b'"code":200' not in frame[at:]:
                raise SystemExit(f"an append was not acknowledged: {frame!r}")
            if counts:
                self.latencies_s.append(now_s - sent_s)
            answered += 1
        if now_s < self._end_s:
            self._send(answered)
        elif not self.done.done():
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """End; before the time, this is an error."""
        if time.perf_counter() < self._end_s:
            raise SystemExit(f"the leader closed the connection: {error}")
        self.done.set_result(None)

    def _send(self, count: int) -> None:
        now_s = time.perf_counter()
        before, after = self._before, self._after
        first = self._opaque
        self._opaque += count
        numbers = range(first, self._opaque)
        self._sent_s.update(dict.fromkeys(numbers, now_s))
        self._transport.write(b"".join(b"%b%d%b" % (before, each, after) for each in numbers))

    def _frames(self, data: bytes) -> Iterator[bytes]:
        data = self._pending + data
        at = 0
        while len(data) - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            yield data[at:end]
            at = end
        self._pending = data[at:]


async def library_load(group: NodeGroup, load: Load, *, idempotent: bool) -> list[float]:
    """The same by the Python client, whose own cost counts then."""
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
                raise SystemExit(f"the load is no measurement any more: {outcome}")
            now_s = time.perf_counter()
            if begin_s <= now_s < end_s:
                latencies_s.append(now_s - handed_s[outcome.number])
    return latencies_s


def processor_s(process_id: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(process_id: int) -> tuple[int, int]:
    """A process' own memory, and its mapped files' pages."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    sizes = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
    return int(sizes["RssAnon"]) >> 10, int(sizes["RssFile"]) >> 10


if __name__ == "__main__":
    main()
