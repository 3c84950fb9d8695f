"""Members with a limit on their memory, and clients that do not read their answers."""

import asyncio
import contextlib
import os
import resource
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import RequestCode
from dledger_formats.protocol.requests import GetEntriesRequest
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.fuzz
MIB = 1 << 20
LIMIT_BYTES = 512 * MIB
"""The default of a DLedgerGroup."""
READERS = 1024
REQUESTS = 40
SETTLED_S = 4.0
"""The member has answered all it will, once its memory has not grown for this long."""
WAIT_S_MAX = 90.0
CGROUPS = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[NodeGroup]:
    """A group of one member that knows its limit and admits all readers from one address."""
    with NodeGroup(
        tmp_path,
        1,
        memory_limit_bytes=LIMIT_BYTES,
        connections_per_address_max=2 * READERS,
        connections_max=2 * READERS,
        election_timeout_ms=4000,
        segment_size_bytes=16 * MIB,
    ) as group:
        yield group


@pytest.fixture
def cgroup(limited: NodeGroup) -> Iterator[Path | None]:
    """A cgroup with the limit, in which the member runs; None where there is none (version 2)."""
    if not (CGROUPS / "memory.limit_in_bytes").exists() or os.geteuid():
        yield None
        return
    folder = CGROUPS / f"dledger-test-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    member = str(limited.process_id("n0"))
    (folder / "cgroup.procs").write_text(member)
    yield folder
    with contextlib.suppress(ProcessLookupError):
        (CGROUPS / "cgroup.procs").write_text(member)
    folder.rmdir()


def own_memory_bytes(process_id: int) -> int:
    """Return the memory of a process in bytes, without its mapped files."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


async def do_not_read(group: NodeGroup, count: int) -> list[asyncio.StreamWriter]:
    """Ask for entries on many connections, and read no answer."""
    request = GetEntriesRequest(group="g", remote_id="n0", begin_index=1, max_size=MIB).to_json()
    asked = frames.encode_requests(RequestCode.GET, [(k, request) for k in range(REQUESTS)])
    host, _, port = group.peers["n0"].rpartition(":")
    writers = []
    for _ in range(count):
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(asked)
        writers.append(writer)
    return writers


async def peak_of(process: int, client: DLedgerClient) -> int:
    """Return the most memory that a process uses until that no longer grows; the member serves
    another client meanwhile.
    """
    now_s = asyncio.get_running_loop().time
    begun_s = grown_s = now_s()
    peak_bytes = 0
    while now_s() - grown_s < SETTLED_S:
        assert now_s() - begun_s < WAIT_S_MAX, "the memory grows without an end"
        assert (await client.append(b"served meanwhile")).index > 0
        memory_bytes = own_memory_bytes(process)
        if memory_bytes > peak_bytes:
            peak_bytes, grown_s = memory_bytes, now_s()
        await asyncio.sleep(0.05)
    return peak_bytes


async def test_slow_readers_on_1024_connections_cost_no_member_its_life(
    limited: NodeGroup, cgroup: Path | None
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    process = limited.process_id("n0")
    async with DLedgerClient(limited.servers, "g") as client:
        async for outcome in client.append_all([bytes(64 * 1024)] * 200):
            assert isinstance(outcome, Acknowledged)
        writers = await do_not_read(limited, READERS)
        try:
            peak_bytes = await peak_of(process, client)
        finally:
            for writer in writers:
                writer.transport.abort()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    in_cgroup = ""
    if cgroup is not None:
        used = int((cgroup / "memory.max_usage_in_bytes").read_text())
        in_cgroup = (
            f"; {used // MIB} MiB at most in its cgroup, with what the kernel keeps of files"
        )
        assert "oom_kill 0" in (cgroup / "memory.oom_control").read_text()
    print(f"{peak_bytes // MIB} MiB of {LIMIT_BYTES // MIB} MiB at most{in_cgroup}")
    assert limited.process_id("n0") == process
    assert limited.running() == ["n0"]
    assert peak_bytes < LIMIT_BYTES * 3 // 4
