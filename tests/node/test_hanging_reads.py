"""A disk that hangs under reads alone: no flush and no save is in flight that would tell it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from dledger_formats.http.status import StorageState
from dledger_formats.protocol.requests import GetEntriesRequest
from dledger_node.raft.messages import AppendRequest
from dledger_node.shell.server import DLedgerServer
from dledger_node.store.segments import page_cache
from dledger_node.store.segments.segment import Segment
from dledger_wire.played import Client, become_master, make_server

STALL_S = 0.05


class HangingDisk:
    """Master n0 of a played group, whose disk answers no read until it may."""

    def __init__(self, server: DLedgerServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        self.may_answer = threading.Event()
        read = Segment.read

        def from_disk(file: Segment, at: int, size: int) -> bytes:
            assert self.may_answer.wait(20)
            return read(file, at, size)

        monkeypatch.setattr(page_cache, "read_cached", lambda *_: 0)
        monkeypatch.setattr(Segment, "read", from_disk)
        monkeypatch.setattr(server._disk.health, "_stall_s", STALL_S)

    def get(self) -> None:
        """Ask for an entry, as a client does."""
        request = GetEntriesRequest(group="g", remote_id="n0", begin_index=0)
        self.server.clients.get(Client(), request, lambda _: None)

    def push(self) -> None:
        """Read an entry for a peer that lags."""
        push = AppendRequest(
            sender="n0", receiver="n1", term=1, previous_index=-1, previous_term=-1,
            first_index=0, last_index=0, entries_term=1, committed_index=0, entries=None,
        )  # fmt: skip
        self.server.clients.peers._owner.fetch(push, 1 << 20, lambda _: None)


@pytest.fixture
async def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HangingDisk]:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    await until(lambda: server._disk.health.is_quiet)  # its first entry is flushed
    disk = HangingDisk(server, monkeypatch)
    yield disk
    disk.may_answer.set()
    await server.close()


async def until(met: Callable[[], bool]) -> None:
    """Wait for a condition that a thread or the passing time brings about."""
    async with asyncio.timeout(20):
        while not met():  # noqa: ASYNC110 - it polls
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("read", [HangingDisk.get, HangingDisk.push])
async def test_a_disk_that_does_not_answer_a_read_stalls_the_member_until_it_does(
    disk: HangingDisk, read: Callable[[HangingDisk], None]
) -> None:
    health, server = disk.server._disk.health, disk.server
    assert health.check() is None

    read(disk)
    await until(lambda: health.check() == 0)
    assert "the disk has not finished a read" in health.problem
    assert server.view.status().storage is StorageState.STALLED
    assert not health.is_quiet

    disk.may_answer.set()
    await until(lambda: health.check() is None and not health.stalled)
    assert server.view.status().storage is StorageState.SOUND


async def test_reads_that_the_disk_answers_are_no_stall_however_many_follow_each_other(
    disk: HangingDisk,
) -> None:
    disk.may_answer.set()
    reads = disk.server.clients.disk_reads
    for _ in range(20):
        disk.get()
        await until(lambda: reads.in_flight_s == 0)

    assert reads.in_flight_s == 0
