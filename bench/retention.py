"""Retention at work: appends continue, old segments are removed, and audits explain each removal.

    python -m bench.retention                            30 minutes at 5,000 appends/s
    python -m bench.retention --minutes 3 --audits 2

Three real members keep a few segments each, while one client appends at a steady rate. Every second
the bench reads how much of the disk each member's folder occupies. The bound is what retention
keeps, the last segment and the one that is allocated ahead, the index files, and what is written in
the few seconds until a due segment is removed. Audits run meanwhile, with Spark. The command
ends with exit code 1 if an append was not acknowledged, a member occupied more than the bound, or
an audit was not Sound.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uvloop

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_formats.audit import AuditSummary, Verdict
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from tools.groups.node_group import NodeGroup

PACE_S: Final = 0.01
SAMPLE_S: Final = 1.0
IN_FLIGHT: Final = 8192
INDEX_UNITS: Final = 1 << 16
"""Entries of one index file."""
INDEX_UNIT_BYTES: Final = 32
UNTIL_REMOVED_S: Final = 5
"""Members check for due segments, and learn what every voter holds, once a second each."""
SMALL_FILES_BYTES: Final = 8 << 20
"""Files other than segments: a reserve for a full volume, checkpoints, and the member's term."""


@dataclass(slots=True)
class Seen:
    """What was observed so far."""

    acknowledged: int = 0
    latencies_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    most_bytes: int = 0
    """The most that one member's folder occupied."""
    audits: list[AuditSummary] = field(default_factory=list)
    is_over: bool = False


def occupied_bytes(folder: Path) -> int:
    """Return the bytes that a folder's files occupy on the disk, including reserved blocks."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_blocks * 512
            except FileNotFoundError:
                continue  # removed meanwhile
    return total


async def append(group: NodeGroup, rate: int, body_bytes: int, seen: Seen) -> None:
    """Append at a steady rate until the end."""
    body = os.urandom(body_bytes)
    handed_s: dict[int, float] = {}

    async def bodies() -> AsyncIterator[bytes]:
        number, began_s = 0, time.monotonic()
        while not seen.is_over:
            while number < (time.monotonic() - began_s) * rate:
                handed_s[number] = time.monotonic()
                yield body
                number += 1
            await asyncio.sleep(PACE_S)

    async with DLedgerClient(group.servers, "g") as client:
        async for outcome in client.append_all(bodies(), in_flight=IN_FLIGHT):
            took_s = time.monotonic() - handed_s.pop(outcome.number)
            if isinstance(outcome, Acknowledged):
                seen.acknowledged += 1
                if outcome.number % 100 == 0:
                    seen.latencies_s.append(took_s)
            else:
                seen.failures.append(str(outcome))


async def watch(group: NodeGroup, seen: Seen) -> None:
    """Sample how many bytes the members' folders occupy."""
    while not seen.is_over:
        for member in group.peers:
            used = await asyncio.to_thread(occupied_bytes, group.store_folder(member))
            seen.most_bytes = max(seen.most_bytes, used)
        await asyncio.sleep(SAMPLE_S)


async def audit_now(group: NodeGroup) -> AuditSummary:
    """Run `dledger-audit` once."""
    with tempfile.NamedTemporaryFile() as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dledger_audit", "--group=g", "--master=local[1]",
            "--verdict-exits-0", f"--summary-file={file.name}",
            *(
                f"--member={member}=http://{group.host(member)}:{port}"
                for member, port in group.http_ports.items()
            ),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        if await process.wait() != 0:
            raise SystemExit(f"dledger-audit ended with {process.returncode}")
        return AuditSummary.from_json(file.read())


async def run(group: NodeGroup, arguments: argparse.Namespace) -> Seen:
    """Append, watch and audit for the given time."""
    seen = Seen()
    work = [
        asyncio.create_task(append(group, arguments.rate, arguments.body_bytes, seen)),
        asyncio.create_task(watch(group, seen)),
    ]
    pause_s = arguments.minutes * 60 / arguments.audits
    ends_s = time.monotonic()
    for _ in range(arguments.audits):
        ends_s += pause_s
        done, _ = await asyncio.wait(
            work, timeout=ends_s - time.monotonic(), return_when=asyncio.FIRST_COMPLETED
        )
        if done:
            break
        seen.audits.append(await audit_now(group))
        print(f"{time.strftime('%H:%M:%S')}  {seen.audits[-1].message}", flush=True)
    seen.is_over = True
    await asyncio.gather(*work)
    return seen


def problems(seen: Seen, bound_bytes: int) -> list[str]:
    """Return the violated expectations."""
    found = [f"an append failed: {each}" for each in seen.failures[:5]]
    if seen.most_bytes > bound_bytes:
        found.append(f"a member occupied {seen.most_bytes >> 20} MiB of {bound_bytes >> 20} MiB")
    found += [
        f"an audit said {audit.verdict}: {audit.first_findings[:1]}"
        for audit in seen.audits
        if audit.verdict is not Verdict.SOUND
    ]
    return found


def main() -> None:
    """Run, print the figures, and exit with 1 if an expectation was violated."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=5_000, help="appends a second")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--keep-mib", type=int, default=128, help="what retention keeps")
    parser.add_argument("--segment-mib", type=int, default=16)
    parser.add_argument("--audits", type=int, default=6, help="audits in that time")
    arguments = parser.parse_args()
    segment_bytes, index_bytes = arguments.segment_mib << 20, INDEX_UNITS * INDEX_UNIT_BYTES
    entry_bytes = arguments.body_bytes + ENTRY_HEADER_SIZE
    kept_bytes = (arguments.keep_mib << 20) + UNTIL_REMOVED_S * arguments.rate * entry_bytes
    bound_bytes = (
        kept_bytes
        + kept_bytes // entry_bytes * INDEX_UNIT_BYTES
        + 2 * (segment_bytes + index_bytes)
        + SMALL_FILES_BYTES
    )
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        NodeGroup(
            Path(folder),
            heartbeat_interval_ms=250,
            election_timeout_ms=2000,
            segment_size_bytes=segment_bytes,
            index_segment_size_bytes=index_bytes,
            retention_bytes=arguments.keep_mib << 20,
        ) as group,
    ):
        term = group.status(group.master()).term
        began_s = time.monotonic()
        seen = uvloop.run(run(group, arguments))
        took_s = time.monotonic() - began_s
        views = [group.status(member) for member in group.peers]
        terms = max(view.term for view in views) - term
    latencies_ms = [each * 1000 for each in sorted(seen.latencies_s)]
    p50_ms, p99_ms = (latencies_ms[len(latencies_ms) * part // 100] for part in (50, 99))
    print(
        f"{seen.acknowledged:,} appends acknowledged in {took_s:.0f} s "
        f"({seen.acknowledged / took_s:,.0f}/s), p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms; "
        f"{terms} changes of term\n"
        f"the logs begin at {', '.join(f'{view.ledger_begin_index:,}' for view in views)}; "
        f"a member occupied {seen.most_bytes >> 20} MiB at most, of {bound_bytes >> 20} MiB\n"
        f"{len(seen.audits)} audits"
    )
    found = problems(seen, bound_bytes)
    if found:
        raise SystemExit("\n".join(found))


if __name__ == "__main__":
    main()
