"""Limits of clients that change while a server runs, whose peers and clients a test plays."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_formats.protocol.codes import DLedgerResponseCode as Code
from dledger_node.remoting.service import AppendCall, BatchCall
from dledger_node.shell.server import DLedgerServer
from dledger_wire.played import Client, become_master, confirmed, elect, make_server


def change(server: DLedgerServer, **limits: int) -> None:
    """Let the file of live settings say this."""
    server._live.current = replace(server._live.current, **limits)
    server._take_settings(server._live.current)


async def append(server: DLedgerServer, client: Client, count: int) -> None:
    """Append entries in one turn of the event loop."""
    server.clients.appends.append([AppendCall(client, 1, b"x") for _ in range(count)])
    await asyncio.sleep(0)


def codes(client: Client) -> list[Code]:
    return [answer.code for answer in client.answers]


@pytest.mark.parametrize("limit", ["pending_requests_max", "client_pending_appends_max"])
async def test_a_new_limit_on_appends_that_wait_counts_those_that_wait_already(
    tmp_path: Path, limit: str
) -> None:
    server, core = make_server(tmp_path)
    await elect(server, core)
    client = Client()
    await append(server, client, 2)
    server.clients.appends.append_batch(BatchCall(client, 2, [b"a", b"b"]))
    await asyncio.sleep(0)

    change(server, **{limit: 5})
    await append(server, client, 3)

    assert codes(client) == [Code.LEADER_PENDING_FULL] * 2
    assert core.ledger_end_index == 5
    await server.close()


@pytest.mark.parametrize("limit", ["pending_requests_max", "client_pending_appends_max"])
async def test_a_batch_that_no_limit_will_ever_admit_is_refused_for_good(
    tmp_path: Path, limit: str
) -> None:
    """The client then sends its bodies one by one."""
    server, core = make_server(tmp_path)
    await elect(server, core)
    client = Client()
    change(server, **{limit: 2})

    for bodies in ([b"a", b"b", b"c"], [b"a", b"b"], [b"c"]):
        server.clients.appends.append_batch(BatchCall(client, 1, bodies))
    await asyncio.sleep(0)

    assert codes(client) == [Code.UNSUPPORTED, Code.LEADER_PENDING_FULL]
    await server.close()


async def test_a_limit_on_the_appends_of_an_address_counts_none_that_was_answered(
    tmp_path: Path,
) -> None:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    client = Client()
    await append(server, client, 3)
    change(server, client_pending_appends_max=3)
    for peer_id in ("n1", "n2"):
        server.clients.peers.receive(confirmed(peer_id, 3))
    assert codes(client) == [Code.SUCCESS] * 3

    await append(server, client, 4)

    assert codes(client)[3:] == [Code.LEADER_PENDING_FULL]
    await server.close()


async def test_a_limit_on_the_appends_of_an_address_can_be_taken_away(tmp_path: Path) -> None:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    client = Client()
    change(server, client_pending_appends_max=2)
    await append(server, client, 2)
    change(server, client_pending_appends_max=0)
    await append(server, client, 20)
    for peer_id in ("n1", "n2"):
        server.clients.peers.receive(confirmed(peer_id, 22))
    change(server, client_pending_appends_max=2)
    await append(server, client, 3)

    assert codes(client) == [Code.SUCCESS] * 22 + [Code.LEADER_PENDING_FULL]
    await server.close()


async def test_quotas_of_an_address_change_for_connections_that_are_open(tmp_path: Path) -> None:
    server, _ = make_server(tmp_path)
    quotas = server.clients.gate.quotas
    assert not quotas.active

    change(server, client_requests_per_s_max=10, client_bytes_per_s_max=1000)
    assert quotas.use("198.18.0.1", 30, 0) == pytest.approx(2.0, abs=0.1)
    assert quotas.use("198.18.0.2", 0, 3000) == pytest.approx(2.0, abs=0.1)

    change(server, client_requests_per_s_max=0, client_bytes_per_s_max=0)
    assert not quotas.active
    await server.close()
