"""Duplicates of idempotent appends whose index units the page cache lacks."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.producers import RegisterProducerRequest
from dledger_node.raft.core import Raft
from dledger_node.remoting.service import IdempotentCall
from dledger_node.shell.server import DLedgerServer
from dledger_node.store.segments import page_cache
from dledger_node.store.segments.segment import Segment
from dledger_wire.played import Client, become_master, confirmed, make_server

Code = DLedgerResponseCode


class ColdLeader:
    """Leader n0 of a played group, which has an entry of a producer, and whose disk waits."""

    def __init__(self, server: DLedgerServer, core: Raft) -> None:
        self.server, self.core = server, core
        self.may_answer = threading.Event()
        server.clients.register_producer(
            RegisterProducerRequest(group="g", remote_id="n0"), lambda _: None
        )
        self.producer = core.ledger_end_index
        self.commit()

    def commit(self) -> None:
        for peer_id in ("n1", "n2"):
            self.server.clients.peers.receive(confirmed(peer_id, self.core.ledger_end_index))

    async def append(self, client: Client) -> None:
        call = IdempotentCall(client, 1, b"once", self.producer, 1)
        self.server.clients.appends.append_idempotent([call])
        await asyncio.sleep(0)

    def make_cold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        read = Segment.read

        def from_disk(file: Segment, at: int, size: int) -> bytes:
            assert threading.current_thread() is not threading.main_thread()
            assert self.may_answer.wait(20)
            return read(file, at, size)

        monkeypatch.setattr(page_cache, "read_cached", lambda *_: 0)
        monkeypatch.setattr(Segment, "read", from_disk)


@pytest.fixture
async def leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ColdLeader]:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    leader = ColdLeader(server, core)
    first = Client()
    await leader.append(first)
    leader.commit()
    assert [answer.code for answer in first.answers] == [Code.SUCCESS]
    leader.make_cold(monkeypatch)
    yield leader
    leader.may_answer.set()
    monkeypatch.undo()
    await server.close()


async def until(met: Callable[[], bool]) -> None:
    """Wait for a condition that a thread brings about."""
    async with asyncio.timeout(20):
        while not met():  # noqa: ASYNC110 - it polls a thread
            await asyncio.sleep(0.001)


async def test_a_thread_reads_the_place_of_a_duplicate(leader: ColdLeader) -> None:
    again = Client()
    await leader.append(again)
    assert (again.answers, again.reads_waiting) == ([], 1)

    leader.may_answer.set()
    await until(lambda: bool(again.answers))
    [answer] = again.answers
    assert (answer.code, answer.index) == (Code.SUCCESS, leader.core.ledger_end_index)
    assert answer.pos > 0
    assert (again.reads_waiting, leader.server.clients.idempotent.repeated) == (0, 1)


async def test_a_duplicate_that_waits_for_the_disk_is_unknown_to_a_member_that_stops(
    leader: ColdLeader,
) -> None:
    clients = [Client() for _ in range(4)]
    for client in clients:
        await leader.append(client)
    leader.server.clients.give_up()

    codes = [[answer.code for answer in client.answers] for client in clients]
    assert codes == [[], [], [Code.WAIT_QUORUM_ACK_TIMEOUT], [Code.WAIT_QUORUM_ACK_TIMEOUT]]


async def test_a_duplicate_whose_entry_is_removed_meanwhile_is_answered_without_its_place(
    leader: ColdLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = Client()
    await leader.append(again)
    log, end_index = leader.server._store._writer, leader.core.ledger_end_index
    monkeypatch.setattr(log, "begin", log.begin._replace(first_index=end_index + 1))
    leader.may_answer.set()

    await until(lambda: bool(again.answers))
    assert [(answer.code, answer.pos) for answer in again.answers] == [(Code.SUCCESS, -1)]
