"""Reads at all members while they mend damaged ranges with each other's bytes; real processes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_formats.log import disk
from dledger_group.damaged import (
    BODIES,
    SEGMENT_BYTES,
    SIZES,
    append_all,
    check_that_nothing_is_lost,
    counted,
    wait_until_level,
)
from dledger_store_files.damage import poke
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

ROUNDS = 9
HURT_BYTES = 30_000
"""About thirty entries, which lie in one segment."""
READERS = {
    "leader": {"read_from": "leader"},
    "followers": {"read_from": "followers"},
    "any": {"read_from": "any"},
    "stale": {"read_from": "followers", "consistency": "stale"},
}
Stored = dict[int, bytes]


def hurt(group: NodeGroup, number: int) -> str:
    """Overwrite a range of a member's log; another member in each round."""
    member = sorted(group.peers)[number % 3]
    pos = (1 + number % 5) * SEGMENT_BYTES + 7000
    data = group.store_folder(member) / disk.DATA_FOLDER
    poke(data, pos, b"\xa5" * HURT_BYTES, segment_bytes=SEGMENT_BYTES)
    return member


def client_of(group: NodeGroup, **options: str) -> DLedgerClient:
    timing = Timing(deadline_s=60.0)
    return DLedgerClient(group.servers, "g", timing=timing, **options)  # type: ignore[arg-type]


async def read_ranges(client: DLedgerClient, stored: Stored, passes: list[int]) -> None:
    """Read the whole log over and over; every entry must be right, and none may be left out."""
    first, last = min(stored), max(stored)
    while True:
        expected = first
        async for entry in client.get_range(first, last):
            assert entry.index == expected
            assert entry.body == stored.get(entry.index, b"")
            expected += 1
        assert expected == last + 1
        passes.append(expected)


async def read_tails(client: DLedgerClient, stored: Stored, passes: list[int]) -> None:
    """The same by tailing from the first entry to the end."""
    first, last = min(stored), max(stored)
    while True:
        async with contextlib.aclosing(client.tail(first)) as entries:
            async for entry in entries:
                assert entry.body == stored.get(entry.index, entry.body)
                if entry.index == last:
                    break
        passes.append(last)


async def append_on(client: DLedgerClient, stored: Stored, passes: list[int]) -> None:
    """Append all the time, after what the others read."""
    while True:
        await client.append(b"one more")
        passes.append(0)


Work = Callable[[DLedgerClient, Stored, list[int]], Awaitable[None]]


@contextlib.asynccontextmanager
async def at_work(
    group: NodeGroup, stored: Stored, passes: dict[str, list[int]]
) -> AsyncIterator[asyncio.TaskGroup]:
    """Let readers and a writer go on while the block runs; the first failure of one ends it."""
    jobs: dict[str, tuple[Work, dict[str, str]]] = {
        **{f"range, {name}": (read_ranges, options) for name, options in READERS.items()},
        **{f"tail, {name}": (read_tails, options) for name, options in READERS.items()},
    }
    async with contextlib.AsyncExitStack() as clients, asyncio.TaskGroup() as tasks:
        running = []
        for name, (work, options) in jobs.items():
            client = await clients.enter_async_context(client_of(group, **options))
            running.append(tasks.create_task(work(client, stored, passes.setdefault(name, []))))
        writer = await clients.enter_async_context(
            DLedgerClient(group.servers, "g", idempotent=True, timing=Timing(deadline_s=60.0))
        )
        running.append(tasks.create_task(append_on(writer, stored, passes.setdefault("w", []))))
        yield tasks
        for task in running:
            task.cancel()


@pytest.mark.storage
async def test_reads_at_all_members_are_right_while_damaged_ranges_are_mended_from_them(
    tmp_path: Path,
) -> None:
    """Each member is damaged in turn, also the leader, and mends from the two that are read."""
    with NodeGroup(
        tmp_path, scrub_interval_s=1, heartbeat_interval_ms=250, election_timeout_ms=5000, **SIZES
    ) as group:
        stored = await append_all(group, BODIES)
        wait_until_level(group)
        terms = {member: group.status(member).term for member in group.running()}
        passes: dict[str, list[int]] = {}
        async with at_work(group, stored, passes):
            for number in range(ROUNDS):
                before = {name: len(done) for name, done in passes.items()}
                member = hurt(group, number)
                await asyncio.to_thread(
                    wait_for,
                    lambda m=member, n=number: counted(group, m, "mended_ranges_total") > n // 3,
                    f"{member} has mended its range",
                )
            for name, count in before.items():  # each has read all since the last damage
                await asyncio.to_thread(
                    wait_for, lambda n=name, c=count: len(passes[n]) > c, f"{name} goes on"
                )

        assert all(len(done) >= 2 for done in passes.values()), passes
        assert {member: group.status(member).term for member in group.running()} == terms
        assert not any("must stop" in group.log(member) for member in group.running())
        await check_that_nothing_is_lost(group, stored)
