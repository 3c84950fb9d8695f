"""What `dledger-audit compact` and its proof take: time, processor time and memory.

    python -m bench.compact --mib 1024           three members of 1 GiB, bodies of 1 KiB, half dead,
                                                 beside an audit of the same logs
    python -m bench.compact --keys 20000000      one folder, an entry for each of so many keys

Processor time and memory are those of the program's whole process tree: driver, JVM and Python
workers, but not the members. The memory is the highest sum of anonymous memory, sampled every
100 ms: the page cache does not count.
"""

import argparse
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

from bench.audit import SUBREAPER, Cost, audit, reap
from bench.cpu_group import cpu_group
from dledger_client.client import DLedgerClient
from dledger_formats.log import disk, properties
from tools.groups.node_group import NodeGroup

BATCH: Final = 10_000
SEGMENT_BYTES: Final = 64 << 20
INDEX_BYTES: Final = 40 << 20


class Run(NamedTuple):
    """What one run of the program took."""

    cost: Cost
    memory_mib: float


def run(arguments: Sequence[str], name: str) -> Run:
    """Run `dledger-audit` once, and print what it took."""
    command = [sys.executable, "-m", "dledger_audit", *arguments]
    with cpu_group() as processors:
        began_s = time.monotonic()
        with subprocess.Popen(
            processors.command(command), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as program:
            peak, is_done = [0], threading.Event()
            sampler = threading.Thread(target=_sample, args=(program.pid, peak, is_done))
            sampler.start()
            _, errors = program.communicate()
            is_done.set()
            sampler.join()
        wall_s = time.monotonic() - began_s
        reap()
        if program.returncode:
            raise SystemExit(errors.decode())
        taken = Run(Cost(wall_s, processors.used_s()), peak[0] / 1024)
    cost = taken.cost
    print(f"{name:18}{cost.wall_s:8.1f}   {cost.processor_s:11.1f}   {taken.memory_mib:10.0f}",
          flush=True)  # fmt: skip
    return taken


def _sample(pid: int, peak: list[int], is_done: threading.Event) -> None:
    while not is_done.wait(0.1):
        peak[0] = max(peak[0], sum(_anonymous_kib(each) for each in _tree(pid)))


def _tree(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    for parent in found:
        try:
            threads = list(Path(f"/proc/{parent}/task").iterdir())
            children = [(thread / "children").read_text().split() for thread in threads]
        except OSError:
            continue
        found += [int(child) for each in children for child in each]
    return found


def _anonymous_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


async def append_pairs(group: NodeGroup, entries: int, body_bytes: int) -> None:
    """Append two values for each key, so that half of the entries are dead."""
    async with DLedgerClient(group.servers, "g") as client:
        for first in range(0, entries, BATCH):
            keys = (number % (entries // 2) for number in range(first, first + BATCH))
            bodies = [(b"%012d=" % key).ljust(body_bytes, b"v") for key in keys]
            async for _ in client.append_all(bodies):
                pass


def write_keys(folder: Path, keys: int, body_bytes: int) -> None:
    """Write the folder of a member with one entry for each key."""
    for name in (disk.DATA_FOLDER, disk.INDEX_FOLDER):
        (folder / name).mkdir(parents=True)
    pos, chain_crc, size = 0, 0, disk.ENTRY_HEADER_SIZE + body_bytes
    per_segment = (SEGMENT_BYTES - disk.BLANK_SIZE_MIN) // size
    with (folder / disk.INDEX_FOLDER / disk.file_name(0)).open("wb") as index:
        for first in range(0, keys, per_segment):
            with (folder / disk.DATA_FOLDER / disk.file_name(pos)).open("wb") as data:
                at, last = pos, min(keys, first + per_segment)
                for start in range(first, last, BATCH):
                    numbers = range(start, min(last, start + BATCH))
                    bodies = [(b"%012d=" % number).ljust(body_bytes, b"v") for number in numbers]
                    packed = disk.pack_entries(
                        bodies, magic=disk.NORMAL, first_index=start, term=1, pos=at,
                        previous_chain_crc=chain_crc,
                    )  # fmt: skip
                    data.write(packed.data)
                    index.write(packed.units)
                    at, chain_crc = at + len(packed.data), packed.chain_crc
                data.write(disk.BLANK_HEADER.pack(disk.BLANK, pos + SEGMENT_BYTES - at))
                data.truncate(SEGMENT_BYTES)
            pos += SEGMENT_BYTES
        index.truncate(-(-keys * disk.INDEX_UNIT_SIZE // INDEX_BYTES) * INDEX_BYTES)
    checkpoint = {"committedIndex": keys - 1, "endIndex": keys - 1}
    (folder / "checkpoint").write_bytes(properties.encode(checkpoint))


def compare(arguments: argparse.Namespace, folder: Path) -> None:
    """Compact a group's log, of which half is dead, beside an audit."""
    entries = (arguments.mib << 20) // (arguments.body_bytes + 48) // 2 * 2
    with NodeGroup(
        folder,
        heartbeat_interval_ms=250,
        election_timeout_ms=2000,
        segment_size_bytes=SEGMENT_BYTES,
        index_segment_size_bytes=INDEX_BYTES,
    ) as group:
        group.master()
        uvloop.run(append_pairs(group, 2, 64))
        starts = [audit(group, arguments.master) for _ in range(2)]
        start = Cost(min(each.wall_s for each in starts), min(each.processor_s for each in starts))
        print(
            f"{'start of an audit':18}{start.wall_s:8.1f}   {start.processor_s:11.1f}", flush=True
        )
        uvloop.run(append_pairs(group, entries, arguments.body_bytes))
        places = [f"{m}=http://{group.host(m)}:{port}" for m, port in group.http_ports.items()]
        for number in range(arguments.passes):
            whole = audit(group, arguments.master)
            print(f"{'whole audit':18}{whole.wall_s:8.1f}   {whole.processor_s:11.1f}", flush=True)
            prove(places, folder / f"archive{number}", arguments.master)


def prove(places: Sequence[str], archive: Path, master: str) -> None:
    """Compact to a new archive, and verify it."""
    members = [f"--member={place}" for place in places]
    run(
        ["compact", "--group=g", *members, "--decoder=kv", f"--archive={archive}",
         f"--master={master}", "--read-rate=0"],
        "compact",
    )  # fmt: skip
    run(
        ["verify-compaction", ",".join(places), str(archive), "--read-rate=0"],
        "verify-compaction",
    )


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024, help="size of each member's log")
    parser.add_argument("--keys", type=int, help="measure one folder with so many keys instead")
    parser.add_argument("--body-bytes", type=int, help="default: 1024, with --keys 64")
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--folder", help="where the logs and archives are kept meanwhile")
    arguments = parser.parse_args()
    arguments.body_bytes = arguments.body_bytes or (64 if arguments.keys else 1024)
    if ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}, {arguments.master}\n"
        f"{'':18}  wall s   processor s   memory MiB"
    )
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        if arguments.keys:
            write_keys(folder / "dledger-n0", arguments.keys, arguments.body_bytes)
            prove([f"n0={folder / 'dledger-n0'}"], folder / "archive", arguments.master)
        else:
            compare(arguments, folder)


if __name__ == "__main__":
    main()
