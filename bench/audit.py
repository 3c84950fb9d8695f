"""How long an audit of three real members takes, and how much processor time: start, then the pass.

    python -m bench.audit --mib 1024                     three logs of 1 GiB with bodies of 1 KiB

An audit of the almost empty group shows what the start costs. The processor time is that of the
audit's process tree: driver, JVM and Python workers, but not the members; a control group counts
it, which needs root. The pass is the rest. All logs are in the page cache. For comparison, one
thread reads the same bytes of all members, one after the other, and computes their checksums. Two
audits with a history follow: one that keeps it, and one with `--since-last` that finds nothing new;
their figures include the start. The memory is the most that the processes of one audit had at once,
without what they share.
"""

import argparse
import contextlib
import ctypes
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from bench.cpu_group import cpu_group
from bench.measured_group import measured_group
from bench.read import fill
from dledger_client.client import DLedgerClient
from dledger_formats.log.checksum import crc32
from pyspark_dledger.http_reader import HttpFiles
from tools.groups.node_group import NodeGroup

MEMORY_S: Final = 0.5
BLOCK_BYTES: Final = 8 << 20
SUBREAPER: Final = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)


class Cost(NamedTuple):
    """What one audit took."""

    wall_s: float
    processor_s: float
    memory_mib: float = 0.0


def audit_command(group: NodeGroup, master: str, options: Sequence[str] = ()) -> list[str]:
    """Return the command line of an audit of all members."""
    members = [
        f"--member={member}=http://{group.host(member)}:{port}"
        for member, port in group.http_ports.items()
    ]
    start = [sys.executable, "-m", "dledger_audit", "--group=g"]
    return [*start, *members, f"--master={master}", *options]


def audit(group: NodeGroup, master: str, options: Sequence[str] = ()) -> Cost:
    """Run `dledger-audit` once; raise an error unless the verdict is Sound."""
    command = audit_command(group, master, ["--read-rate=0", *options])
    with cpu_group() as processors:
        began_s = time.monotonic()
        with subprocess.Popen(
            processors.command(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as program:
            memory = Memory(program.pid)
            code = program.wait()
        wall_s = time.monotonic() - began_s
        memory.end()
        reap()
        if code:
            raise subprocess.CalledProcessError(code, command)
        return Cost(wall_s, processors.used_s(), memory.most_mib)


def read_and_sum(group: NodeGroup) -> Cost:
    """Read the entries of all members over HTTP in this thread, and compute their checksums."""
    began_s, began_cpu_s = time.monotonic(), time.thread_time()
    for member, port in group.http_ports.items():
        with HttpFiles(f"http://{group.host(member)}:{port}") as files:
            for file in files.manifest().data:
                checksum = 0
                for start in range(0, file.readable_bytes, BLOCK_BYTES):
                    end = min(file.readable_bytes, start + BLOCK_BYTES)
                    checksum = crc32(files.read("data", file.name, start, end), checksum)
    return Cost(time.monotonic() - began_s, time.thread_time() - began_cpu_s)


class Memory:
    """Watches the private memory of a process and of all that it has started."""

    def __init__(self, pid: int) -> None:
        self.most_mib = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(pid,))
        self._thread.start()

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._thread.join()

    def _watch(self, pid: int) -> None:
        while not self._ended.wait(MEMORY_S):
            kib = sum(private_kib(each) for each in tree(pid))
            self.most_mib = max(self.most_mib, kib / 1024)


def tree(pid: int) -> set[int]:
    """Return a process and its descendants that are still alive."""
    found, new = {pid}, [pid]
    while new:
        for task in Path(f"/proc/{new.pop()}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                children = {int(each) for each in task.read_text().split()} - found
                found |= children
                new += children
    return found


def private_kib(pid: int) -> int:
    """Return the memory of a process that it does not share; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def show(what: str, cost: Cost, read_gb: float = 0.0) -> None:
    """Print a row."""
    per_gb = f"{cost.processor_s / read_gb:23.2f}" if read_gb else " " * 23
    print(
        f"{what:12}  {cost.wall_s:8.1f}   {cost.processor_s:11.1f}   {per_gb}   "
        f"{cost.memory_mib:10.0f}",
        flush=True,
    )


def reap() -> None:
    """Wait for the JVM and the workers, which outlive their parent for a moment.

    This process inherits them one after the other, as their own parents end. The members are
    children of this process too, and are left to their group.
    """
    while mine := [pid for pid in children() if b"dledger_node" not in command_line(pid)]:
        for pid in mine:
            os.waitpid(pid, 0)


def children() -> list[int]:
    """Return the children of this process, including those that have ended."""
    return [
        int(pid)
        for task in Path("/proc/self/task").iterdir()
        for pid in (task / "children").read_text().split()
    ]


def command_line(pid: int) -> bytes:
    """Return the command line of a child; nothing if it has ended."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


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
        "                wall s   processor s   processor s per GB read   memory MiB"
    )
    entries = (arguments.mib << 20) // (arguments.body_bytes + 48)
    with (
        tempfile.TemporaryDirectory(dir=arguments.folder) as folder,
        measured_group(Path(folder), election_timeout_ms=2000) as group,
    ):
        group.master()
        uvloop.run(append(group, 1, arguments.body_bytes))
        starts = [audit(group, arguments.master) for _ in range(arguments.passes)]
        start = Cost(min(each.wall_s for each in starts), min(each.processor_s for each in starts))
        show("start", start)
        uvloop.run(append(group, entries, arguments.body_bytes))
        read_gb = 3 * entries * (arguments.body_bytes + 48) / 1e9
        for _ in range(arguments.passes):
            whole = audit(group, arguments.master)
            wall_s, own_s = whole.wall_s - start.wall_s, whole.processor_s - start.processor_s
            show("the pass", Cost(wall_s, own_s, whole.memory_mib), read_gb)
            show("one thread", read_and_sum(group), read_gb)
        history = f"--history={folder}/history"
        show("with history", audit(group, arguments.master, [history]))
        show("--since-last", audit(group, arguments.master, [history, "--since-last"]))


if __name__ == "__main__":
    main()
