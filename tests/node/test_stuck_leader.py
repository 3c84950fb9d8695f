"""A leader whose followers take no entries, since they are full, refuses what it can refuse."""

import asyncio
from pathlib import Path

from dledger_formats.protocol import codes
from dledger_formats.protocol.codes import DLedgerResponseCode as Code
from dledger_formats.protocol.producers import RegisterProducerRequest, RegisterProducerResponse
from dledger_node.raft.core import Raft
from dledger_node.raft.messages import HeartBeatResponse
from dledger_node.remoting.service import AppendCall
from dledger_node.services.quorum_progress import QuorumProgress
from dledger_node.services.waiting import ANSWER_WAIT_S
from dledger_node.shell.server import DLedgerServer
from dledger_wire.played import Client, become_master, confirmed, make_server


async def append(server: DLedgerServer) -> Client:
    client = Client()
    server.clients.appends.append([AppendCall(client, 7, b"small")])
    await asyncio.sleep(0)
    return client


def confirm_all(server: DLedgerServer, core: Raft) -> None:
    for peer_id in ("n1", "n2"):
        server.clients.peers.receive(confirmed(peer_id, core.ledger_end_index))


async def test_appends_behind_an_entry_that_no_follower_takes_are_refused(tmp_path: Path) -> None:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    proposed = await append(server)
    also_proposed = await append(server)
    server.clients.appends._proposer._progress._since_s -= (
        ANSWER_WAIT_S  # that much time has passed
    )
    refused = await append(server)

    assert [answer.code for answer in refused.answers] == [Code.LEADER_NOT_READY]
    assert Code.LEADER_NOT_READY in codes.NOT_APPENDED
    assert core.ledger_end_index == 2
    assert proposed.answers == also_proposed.answers == [], "they may still be committed"

    confirm_all(server, core)
    assert [answer.code for answer in also_proposed.answers] == [Code.SUCCESS]
    taken = await append(server)
    confirm_all(server, core)
    assert [answer.code for answer in taken.answers] == [Code.SUCCESS]
    await server.close()


async def test_a_leader_is_stuck_only_while_nothing_at_all_becomes_committed(
    tmp_path: Path,
) -> None:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    progress = QuorumProgress(core)
    assert not progress.is_stuck(0.0)
    assert not progress.is_stuck(100.0), "it had nothing to commit"
    await append(server)
    await append(server)
    assert not progress.is_stuck(100.0 + ANSWER_WAIT_S - 0.1)
    for peer_id in ("n1", "n2"):
        server.clients.peers.receive(confirmed(peer_id, 1))
    assert core.committed_index == 1
    assert not progress.is_stuck(200.0), "it has committed an entry"
    assert progress.is_stuck(200.0 + ANSWER_WAIT_S)
    await server.close()


def tell(server: DLedgerServer, round_: int, *, full: bool) -> None:
    for peer_id in ("n1", "n2"):
        server.clients.peers.receive(
            HeartBeatResponse(sender=peer_id, receiver="n0", term=1, round=round_, full=full)
        )


async def test_appends_are_refused_while_the_followers_are_full_and_earlier_ones_are_not(
    tmp_path: Path,
) -> None:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    in_flight = await append(server)
    tell(server, 1, full=True)
    refused = await append(server)
    registrations: list[RegisterProducerResponse] = []
    register = RegisterProducerRequest(group="g", remote_id="n0")
    server.clients.register_producer(register, registrations.append)

    assert [answer.code for answer in refused.answers] == [Code.DISK_FULL]
    assert [answer.code for answer in registrations] == [Code.DISK_FULL]
    assert Code.DISK_FULL in codes.NOT_APPENDED
    assert core.ledger_end_index == 1
    assert in_flight.answers == [], "it may still be committed"

    tell(server, 2, full=False)
    taken = await append(server)
    confirm_all(server, core)
    assert [answer.code for answer in in_flight.answers + taken.answers] == [Code.SUCCESS] * 2
    await server.close()
