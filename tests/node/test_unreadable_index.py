"""An index block that cannot be read when committed appends are answered."""

import asyncio
from pathlib import Path

import pytest

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.producers import RegisterProducerRequest
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.raft.core import Raft
from dledger_node.remoting.service import AppendCall, BatchCall, IdempotentCall
from dledger_node.shell.server import DLedgerServer
from dledger_node.store.log.files import LogFiles
from dledger_wire.played import Client, become_master, confirmed, make_server


async def test_every_append_of_the_turn_gets_an_answer_and_the_damage_ends_the_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    clients = [Client() for _ in range(3)]
    batch = Client()
    server.clients.appends.append([AppendCall(client, 7, b"mine") for client in clients])
    server.clients.appends.append_batch(BatchCall(batch, 8, [b"a", b"b"]))
    await asyncio.sleep(0)
    positions = server._store._writer.positions

    def unreadable(first_index: int, last_index: int) -> list[int]:
        if last_index < core.ledger_end_index - 1:  # before the first entry of the batch
            return positions(first_index, last_index)
        raise StoreDamagedError("Input/output error", Damage.UNREADABLE, last_index)

    monkeypatch.setattr(server._store._writer, "positions", unreadable)
    for peer_id in ("n1", "n2"):
        server.clients.peers.receive(confirmed(peer_id, core.ledger_end_index))

    for client in (*clients, batch):
        codes = [answer.code for answer in client.answers]
        assert codes == [DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT], "unknown, and said once"
    counters = server.view.counters()
    assert (counters.appends_acknowledged, counters.appends_unknown) == (0, 5)
    assert server._store.damage is not None
    with pytest.raises(StoreDamagedError, match="Input/output error"):
        await asyncio.wait_for(server.fatal, 10)
    monkeypatch.undo()
    await server.close()


async def test_a_duplicate_whose_place_cannot_be_read_keeps_no_other_append_from_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    first, again, new, plain = (Client() for _ in range(4))
    server.clients.register_producer(
        RegisterProducerRequest(group="g", remote_id="n0"), lambda _: None
    )
    producer = core.ledger_end_index
    commit_all(server, core)
    server.clients.appends.append_idempotent([IdempotentCall(first, 1, b"a", producer, 1)])
    await asyncio.sleep(0)
    commit_all(server, core)

    def unreadable(index: int) -> None:
        raise StoreDamagedError("Input/output error", Damage.UNREADABLE, index)

    monkeypatch.setattr(LogFiles, "unit", lambda _, index: unreadable(index))
    server.clients.appends.append_idempotent(
        [IdempotentCall(again, 2, b"a", producer, 1), IdempotentCall(new, 3, b"b", producer, 2)]
    )
    server.clients.appends.append([AppendCall(plain, 4, b"plain")])
    await asyncio.sleep(0)
    commit_all(server, core)
    monkeypatch.undo()

    assert [answer.code for answer in again.answers] == [
        DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT
    ]
    for client in (new, plain):
        assert [answer.code for answer in client.answers] == [DLedgerResponseCode.SUCCESS]
    assert server._store.damage is not None
    await server.close()


def commit_all(server: DLedgerServer, core: Raft) -> None:
    for peer_id in ("n1", "n2"):
        server.clients.peers.receive(confirmed(peer_id, core.ledger_end_index))
