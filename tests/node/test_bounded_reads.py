"""How much one answer to a read holds, and in which order many reads are answered."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.cluster.connection import Connection
from dledger_formats.log import disk
from dledger_formats.protocol.codes import RequestCode
from dledger_formats.protocol.follow import FOLLOW, FollowRequest
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.requests import GetEntriesRequest, GetEntriesResponse
from dledger_group.alone import connection_to, member_alone
from dledger_node.services.entries import ENTRIES_MAX

ENCODED_BYTES_MAX = 256 << 10
ALL = (1 << 31) - 1


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[DLedgerClient]:
    """A client of a single-member group. The log has entries 0 and 1."""
    async with (
        member_alone(tmp_path, segment_size_bytes=8 << 20) as address,
        DLedgerClient([address], "g") as client,
    ):
        await client.append(b"first")
        yield client


@pytest.fixture
async def connection(client: DLedgerClient) -> AsyncIterator[Connection]:
    """A connection to that member, without a client."""
    async with connection_to(client) as connection:
        yield connection


async def get(connection: Connection, begin_index: int, max_size: int) -> RemotingCommand:
    request = GetEntriesRequest(
        group="g", remote_id="n0", begin_index=begin_index, max_size=max_size
    )
    return await connection.ask(RequestCode.GET, request.to_json(), 20)


async def follow(connection: Connection, begin_index: int, max_size: int) -> RemotingCommand:
    request = FollowRequest(group="g", remote_id="n0", begin_index=begin_index, max_size=max_size)
    return await connection.ask(FOLLOW, request.to_json(), 20)


@pytest.mark.parametrize("read", [get, follow])
@pytest.mark.parametrize("body_bytes", [0, 1, 100, 1000, 30_000])
async def test_an_answer_is_bounded_in_entries_and_encoded_bytes(
    client: DLedgerClient, connection: Connection, read: object, body_bytes: int
) -> None:
    bodies = [bytes([200]) * body_bytes] * min(2000, 2_000_000 // (body_bytes + 1))
    first = (await client.append_batch(bodies))[0].index  # type: ignore[union-attr]
    command = await read(connection, first, ALL)  # type: ignore[operator]
    entries = GetEntriesResponse.from_json(command.body).entries

    assert 1 < len(entries) <= ENTRIES_MAX
    assert len(command.body) <= ENCODED_BYTES_MAX
    assert [entry.index for entry in entries] == list(range(first, first + len(entries)))
    assert all(entry.body == bodies[0] and entry.is_intact for entry in entries)


async def test_one_entry_of_the_largest_size_is_always_read(
    client: DLedgerClient, connection: Connection
) -> None:
    body = bytes(disk.BODY_SIZE_MAX)
    first = (await client.append(body)).index
    await client.append(b"next")
    command = await get(connection, first, ALL)

    assert [entry.body for entry in GetEntriesResponse.from_json(command.body).entries] == [body]


async def test_a_read_without_a_size_returns_one_entry_even_if_it_is_empty(
    client: DLedgerClient, connection: Connection
) -> None:
    first = (await client.append_batch([b"", b""]))[0].index  # type: ignore[union-attr]
    command = await get(connection, first, 0)

    assert [entry.body for entry in GetEntriesResponse.from_json(command.body).entries] == [b""]


async def test_many_reads_of_one_connection_are_all_answered_and_do_not_delay_others(
    client: DLedgerClient, connection: Connection
) -> None:
    await client.append_batch([bytes(100)] * 2000)
    done: list[int] = []

    async def read(number: int) -> None:
        await get(connection, number, ALL)
        done.append(number)

    reads = [asyncio.create_task(read(number)) for number in range(1000)]
    await get(connection, 0, 0)
    await client.append(b"an append of another client")
    assert len(done) < 1000, "the append did not wait for the reads"
    await asyncio.gather(*reads)

    assert sorted(done) == list(range(1000))


async def test_a_log_of_empty_bodies_can_be_read(client: DLedgerClient) -> None:
    await client.append_batch([b""] * 5000)
    bodies = [entry.body async for entry in client.get_range(0)]

    assert bodies == [b"", b"first"] + [b""] * 5000
