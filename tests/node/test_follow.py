"""FOLLOW: what a real member answers, at once and later."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.cluster.connection import Connection
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.follow import FOLLOW, ONLY_THE_ENDS, FollowRequest, FollowResponse
from dledger_group.alone import connection_to, member_alone
from dledger_node.raft.messages import HeartBeatResponse
from dledger_node.remoting.read_turns import ReadTurns
from dledger_node.services.entries import EntryReads
from dledger_node.services.follow import Follows
from dledger_node.services.held_reads import HeldReads
from dledger_wire.played import Client, become_master, make_server


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[DLedgerClient]:
    """A client of a single-member group.

    It has appended two entries after the leader's first one.
    """
    async with member_alone(tmp_path) as address, DLedgerClient([address], "g") as client:
        for body in (b"one", b"two"):
            await client.append(body)
        yield client


@pytest.fixture
async def connection(client: DLedgerClient) -> AsyncIterator[Connection]:
    """A connection to that member, without a client."""
    async with connection_to(client) as connection:
        yield connection


async def follow(
    connection: Connection, begin_index: int, *, max_size: int = 0, wait_ms: int = 0
) -> FollowResponse:
    request = FollowRequest(
        group="g", remote_id="n0", begin_index=begin_index, max_size=max_size, wait_ms=wait_ms
    )
    command = await connection.ask(FOLLOW, request.to_json(), 20)
    return FollowResponse.from_json(command.body)


@pytest.mark.parametrize(("max_size", "bodies"), [(0, [b"one"]), (6, [b"one", b"two"])])
async def test_a_committed_entry_is_answered_at_once(
    connection: Connection, max_size: int, bodies: list[bytes]
) -> None:
    answer = await follow(connection, 1, max_size=max_size, wait_ms=10_000)

    assert [entry.body for entry in answer.entries] == bodies
    assert (answer.ledger_begin_index, answer.committed_index) == (0, 2)


async def test_what_is_not_committed_yet_is_answered_when_it_is(
    client: DLedgerClient, connection: Connection
) -> None:
    waiting = [
        asyncio.create_task(follow(connection, index, wait_ms=20_000)) for index in (3, 3, 4)
    ]
    await follow(connection, ONLY_THE_ENDS)  # so the requests above have arrived

    await client.append(b"three")
    first, second = await waiting[0], await waiting[1]
    assert first == second
    assert [entry.body for entry in first.entries] == [b"three"]
    assert not waiting[2].done()
    await client.append(b"four")
    assert [entry.body for entry in (await waiting[2]).entries] == [b"four"]


async def test_a_read_without_an_entry_is_answered_when_its_wait_is_over(
    connection: Connection,
) -> None:
    answer = await follow(connection, 3, wait_ms=30)

    assert (answer.code, answer.entries) == (DLedgerResponseCode.SUCCESS, [])


async def test_a_request_for_the_ends_alone_never_waits(connection: Connection) -> None:
    answer = await follow(connection, ONLY_THE_ENDS, max_size=1000)

    assert (answer.entries, answer.committed_index) == ([], 2)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": "other", "remote_id": "n0"}, DLedgerResponseCode.UNKNOWN_GROUP),
        ({"group": "g", "remote_id": "n1"}, DLedgerResponseCode.UNKNOWN_MEMBER),
    ],
)
async def test_a_request_for_another_member_or_group_is_refused(
    connection: Connection, fields: dict[str, str], code: DLedgerResponseCode
) -> None:
    request = FollowRequest(begin_index=0, **fields)  # type: ignore[arg-type]
    command = await connection.ask(FOLLOW, request.to_json(), 20)

    assert FollowResponse.from_json(command.body).code is code


async def test_one_read_too_many_releases_the_oldest_which_asks_again(tmp_path: Path) -> None:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    turns = ReadTurns(asyncio.get_running_loop().call_soon)
    prove = server.clients.proofs.prove_read
    held = HeldReads(core, waiting_max=2)
    entries = EntryReads(server._store, turns, server.clients.disk_reads)
    follows = Follows(core, entries, group="g", turns=turns, held=held, prove=prove)
    waiting = [Client() for _ in range(3)]
    for opaque, waiter in enumerate(waiting):
        request = FollowRequest(group="g", remote_id="n0", begin_index=1, wait_ms=20_000)
        follows.follow(waiter, opaque, request)

    assert [len(waiter.answers) for waiter in waiting] == [1, 0, 0]
    assert waiting[0].answers[0].code is DLedgerResponseCode.SUCCESS
    held.give_up()
    assert [len(waiter.answers) for waiter in waiting] == [1, 1, 1]
    await server.close()


@pytest.mark.parametrize(
    ("begin_index", "waits"), [(ONLY_THE_ENDS, False), (ONLY_THE_ENDS, True), (1, False)]
)
async def test_the_end_of_the_log_is_told_once_the_leader_has_proved_that_it_leads(
    tmp_path: Path, begin_index: int, waits: bool
) -> None:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    asking = Client()
    request = FollowRequest(
        group="g", remote_id="n0", begin_index=begin_index, wait_ms=20_000 if waits else 0
    )
    server.clients.follow(asking, 1, request)
    await asyncio.sleep(0)
    assert not asking.answers

    for round_ in range(1, 4):
        server.clients.peers.receive(
            HeartBeatResponse(sender="n1", receiver="n0", term=1, round=round_, joining=False)
        )
    await asyncio.sleep(0)
    assert [answer.code for answer in asking.answers] == [DLedgerResponseCode.SUCCESS]
    await server.close()


async def test_a_tail_of_a_real_member_gets_each_entry_once(client: DLedgerClient) -> None:
    entries = client.tail(1)
    read = [(await anext(entries)).body for _ in range(2)]
    for number in range(20):
        following = asyncio.ensure_future(anext(entries))
        await client.append(b"%d" % number)
        read.append((await following).body)
    await entries.aclose()

    assert read == [b"one", b"two", *(b"%d" % number for number in range(20))]
