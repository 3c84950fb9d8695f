"""How long an audit of three real members takes, and how much processor time: start, then the pass.

    python -m bench.audit --mib 1024                     three logs of 1 GiB with bodies of 1 KiB

An audit of the almost empty group shows what the start costs. The processor time is that of the
audit's whole process tree: driver, JVM and Python workers, but not the members. The pass is the
rest. All logs are in the page cache.
"""

import argparse
import ctypes
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from bench.read import fill
from dledger_client.client import DLedgerClient
from tools.groups.node_group import NodeGroup

SUBREAPER: Final = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)


class Cost(NamedTuple):
    """What one audit took."""

    wall_s: float
    processor_s: float


def audit(group: NodeGroup, master: str) -> Cost:
    """Run `dledger-audit` once; raise an error unless the verdict is Sound."""
    members = [
        f"--member={member}=http://{group.host(member)}:{port}"
        for member, port in group.http_ports.items()
    ]
    before, began_s = children_s(), time.monotonic()
    subprocess.run(
        [
            sys.executable, "-m", "dledger_audit", "--group=g", *members, f"--master={master}",
            "--read-rate=0",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wall_s = time.monotonic() - began_s
    reap()
    return Cost(wall_s, children_s() - before)


def reap() -> None:
    """Wait for the JVM and the workers, which outlive their parent for a moment.

    The members are children of this process too, and are left to their group.
    """
    mine = {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}
    for pid in mine:
        name = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"dledger_node" not in name:
            os.waitpid(pid, 0)


def children_s() -> float:
    """Return the processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def append(group: NodeGroup, entries: int, body_bytes: int) -> None:
    """Fill the group's log."""
    async with DLedgerClient(group.servers, "g") as client:
        await fill(client, entries, body_bytes)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024, help="size of each member's log")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--folder", help="where the members keep their logs")
    arguments = parser.parse_args()
    if ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}, {arguments.master}\n"
        "             wall s   processor s   processor s per GB read"
    )
    entries = (arguments.mib << 20) // (arguments.body_bytes + 48)
    with (
        tempfile.TemporaryDirectory(dir=arguments.folder) as folder,
        NodeGroup(
            Path(folder),
            heartbeat_interval_ms=250,
            election_timeout_ms=2000,
            segment_size_bytes=256 << 20,
            index_segment_size_bytes=40 << 20,
        ) as group,
    ):
        group.master()
        uvloop.run(append(group, 1, arguments.body_bytes))
        starts = [audit(group, arguments.master) for _ in range(arguments.passes)]
        start = Cost(min(each.wall_s for each in starts), min(each.processor_s for each in starts))
        print(f"start      {start.wall_s:8.1f}   {start.processor_s:11.1f}", flush=True)
        uvloop.run(append(group, entries, arguments.body_bytes))
        read_gb = 3 * entries * (arguments.body_bytes + 48) / 1e9
        for _ in range(arguments.passes):
            whole = audit(group, arguments.master)
            wall_s, own_s = whole.wall_s - start.wall_s, whole.processor_s - start.processor_s
            print(f"the pass   {wall_s:8.1f}   {own_s:11.1f}   {own_s / read_gb:23.2f}", flush=True)


if __name__ == "__main__":
    main()
