"""A disk that hangs under the reads of a broker's threads: no flush is in flight that tells it."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from dledger_broker.broker import Broker
from dledger_broker.metrics import BrokerCounters
from dledger_broker.program import BrokerProgram
from dledger_broker.queues.builder import QueueId
from dledger_broker.settings import BrokerSettings
from dledger_formats.rocketmq.consume_queue import UNIT_BYTES
from dledger_formats.settings import NodeSettings
from dledger_node import main
from dledger_node.embedding import Member
from dledger_node.shell.server import DLedgerServer
from dledger_store_files.contents import flush
from dledger_wire.listener import until
from tools.groups.ports import free_ports

STALL_S = 0.05
QUEUE = QueueId("T", 0)


class HangingBroker:
    """A broker whose member is in service, and whose disk answers no read until it may."""

    def __init__(self, server: DLedgerServer, settings: BrokerSettings) -> None:
        self.server = server
        self.member = Member(server)
        self.broker = Broker(settings, self.member, BrokerCounters())
        self.may_answer = threading.Event()

    async def read_units(self) -> Callable[[], object]:
        """Write a unit of a consume queue; return what reads it."""
        store = await self.broker._feed.open()
        store._files.write(QUEUE, 0, bytes(UNIT_BYTES))
        return lambda: store._files.read(QUEUE, 0, 1)

    async def entries(self) -> Callable[[], object]:
        return lambda: self.member.read(0, 0)

    async def header(self) -> Callable[[], object]:
        return lambda: self.member.header(0)

    async def stored_bytes(self) -> Callable[[], object]:
        return lambda: self.member.stored_at(0, 10)

    async def begin_pos(self) -> Callable[[], object]:
        return lambda: self.member.begin_pos


@pytest.fixture
async def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HangingBroker]:
    ports = free_ports()
    node = NodeSettings(
        group="g", self_id="n0", peers={"n0": f"127.0.0.1:{next(ports)}"},
        store_base_dir=str(tmp_path), listen_host="127.0.0.1", segment_size_bytes=1 << 20,
        index_segment_size_bytes=1 << 20,
    )  # fmt: skip
    settings = BrokerSettings(node=node, addresses={"n0": f"127.0.0.1:{next(ports)}"}, name="b")
    opened = main.open_store(node, program=BrokerProgram(settings))
    server = main.build_server(node, opened)
    for body in (b"body", b"the tail, which is in memory"):
        server._store.append_bodies([body], 1)
    flush(server._store)
    hanging = HangingBroker(server, settings)
    monkeypatch.setattr(server._disk.health, "_stall_s", STALL_S)
    yield hanging
    hanging.may_answer.set()
    await hanging.broker._feed.close()
    await server.close()


KINDS = [
    HangingBroker.read_units, HangingBroker.entries, HangingBroker.header,
    HangingBroker.stored_bytes, HangingBroker.begin_pos,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_a_read_of_a_broker_that_the_disk_does_not_answer_stalls_the_member(
    hanging: HangingBroker,
    kind: Callable[[HangingBroker], Awaitable[Callable[[], object]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    health, read = hanging.server._disk.health, await kind(hanging)
    pread = os.pread

    def from_disk(fd: int, size: int, at: int) -> bytes:
        assert hanging.may_answer.wait(20)
        return pread(fd, size, at)

    assert health.check() is None
    monkeypatch.setattr(os, "pread", from_disk)
    reading = asyncio.create_task(asyncio.to_thread(read))
    await until(lambda: health.check() == 0, 10)
    assert "the disk has not finished a read" in health.problem

    hanging.may_answer.set()
    await reading
    assert health.check() is None
    assert not health.stalled


async def test_a_wait_for_the_state_machine_is_no_read(hanging: HangingBroker) -> None:
    reads, state = hanging.server.clients.program_reads, hanging.member._state
    waits = threading.Event()
    with state.reading:

        def read() -> None:
            waits.set()
            hanging.member.read(0, 0)

        reading = asyncio.create_task(asyncio.to_thread(read))
        await until(waits.is_set)
        assert reads.in_flight_s == 0
    await reading
    assert reads.in_flight_s == 0
