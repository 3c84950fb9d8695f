"""How fast `dledger export` and `dledger import` move entries: real nodes and the commands here.

    python -m bench.export                                 200,000 entries of 1 KiB
    python -m bench.export --entries 1000000 --body-bytes 100 --rounds 5

A group of three exports to a file, which another group of three imports into its empty log; each
round has a new second group. Then a member of the first group is stopped, and its folder is
exported. Groups and commands share the machine's cores, disk and loopback. The seconds are those of
the whole command, with the start of Python; the processor time is that of the command alone.
"""

import argparse
import asyncio
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from bench.read import fill
from dledger_client.client import DLedgerClient
from tools.groups.node_group import NodeGroup

COMMAND: Final = [sys.executable, "-m", "dledger_client"]
MIB: Final = 1 << 20
SEGMENTS: Final[dict[str, int]] = {
    "segment_size_bytes": 256 << 20, "index_segment_size_bytes": 40 << 20,
}  # fmt: skip


class Run(NamedTuple):
    """One run of a command."""

    seconds: float
    processor_s: float


async def filled(group: NodeGroup, entries: int, body_bytes: int) -> int:
    """Append the entries; return how many the log has, with those of leaders."""
    async with DLedgerClient(group.servers, "g") as client:
        await fill(client, entries, body_bytes)
        bounds = await client.bounds()
        return bounds.end_index + 1 - bounds.begin_index


def run(command: list[str], state: Path) -> Run:
    """Run a command of `dledger`, whose producers are remembered in the folder `state`."""
    used_s, began_s = children_s(), time.perf_counter()
    done = subprocess.run(
        [*COMMAND, *command],
        env={**os.environ, "XDG_STATE_HOME": str(state)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr}")
    return Run(time.perf_counter() - began_s, children_s() - used_s)


def children_s() -> float:
    """Return the processor seconds of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def round_trip(group: NodeGroup, folder: Path) -> dict[str, Run]:
    """Export from a group, and import into a new one."""
    file = folder / "all.export"
    file.unlink(missing_ok=True)
    source = ["--servers", ",".join(group.servers), "--group", "g"]
    exported = run(["export", str(file), *source], folder)
    with (
        tempfile.TemporaryDirectory(dir=folder) as second,
        NodeGroup(Path(second), **SEGMENTS) as other,
    ):
        other.master()
        target = ["--servers", ",".join(other.servers), "--group", "g"]
        imported = run(["import", str(file), *target], Path(second))
    return {"export": exported, "import": imported}


def from_folder(group: NodeGroup, member: str, folder: Path) -> Run:
    """Export the folder of a stopped member."""
    file = folder / "folder.export"
    file.unlink(missing_ok=True)
    log = group.folder / f"dledger-{member}"
    return run(["export", "--folder", str(log), "--group", "g", str(file)], folder)


def measured(entries: int, body_bytes: int, rounds: int, folder: Path) -> None:
    """Measure each command, and print a line for it."""
    source = folder / "source"
    source.mkdir()
    runs: dict[str, list[Run]] = {}
    with NodeGroup(source, **SEGMENTS) as group:
        held = asyncio.run(filled(group, entries, body_bytes))
        for _ in range(rounds):
            for name, one in round_trip(group, folder).items():
                runs.setdefault(name, []).append(one)
        member = next(each for each in group.peers if each != group.master())
        group.stop(member)
        runs["export --folder"] = [from_folder(group, member, folder) for _ in range(rounds)]
    for name, each in runs.items():
        print(row(name, each, held, entries * body_bytes), flush=True)


def row(name: str, runs: list[Run], entries: int, body_bytes: int) -> str:
    """Return a line of the table: the median of the runs, and their range."""
    seconds = sorted(one.seconds for one in runs)
    median_s = statistics.median(seconds)
    return (
        f"{name:16}  {seconds[0]:6.1f} to {seconds[-1]:6.1f}  {body_bytes / MIB / median_s:7.1f}  "
        f"{entries / median_s:10,.0f}  {statistics.median(one.processor_s for one in runs):11.1f}"
    )


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=200_000, help="default: %(default)s")
    parser.add_argument("--body-bytes", type=int, default=1024, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--folder", help="where the members keep their logs")
    given = parser.parse_args()
    print(
        f"two groups of 3 and the commands on one machine: {os.cpu_count()} cores, "
        f"{platform.machine()}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}\n"
        f"{given.entries:,} entries with bodies of {given.body_bytes} bytes, SyncFlush, medians of "
        f"{given.rounds} runs\n"
        "command           seconds, range      MiB/s   entries/s   processor s"
    )
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        measured(given.entries, given.body_bytes, given.rounds, Path(folder))


if __name__ == "__main__":
    main()
