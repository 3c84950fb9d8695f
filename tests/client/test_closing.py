"""Closing a client while calls are under way: each of them ends, and nothing stays open."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from dledger_client.client import BATCH_MAX, DLedgerClient
from dledger_client.errors import GroupUnreachableError
from dledger_client.session import BATCHES_MAX
from dledger_fake_server.behavior import Fault
from dledger_fake_server.group import Group

TEST_S = 10


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x"
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_idempotent", [False, True])
async def test_a_stream_that_takes_bodies_while_its_client_is_closed_ends(
    group: Group, is_idempotent: bool
) -> None:
    ended: list[object] = []

    async def append(client: DLedgerClient) -> None:
        ended.extend([outcome async for outcome in client.append_all(endless(), in_flight=8)])

    async with asyncio.timeout(TEST_S):
        async with DLedgerClient(group.servers, "g0", idempotent=is_idempotent) as client:
            appending = asyncio.create_task(append(client))
            while len(group.log) < 20:  # noqa: ASYNC110 - the log is a plain list
                await asyncio.sleep(0)
        with pytest.raises(GroupUnreachableError, match="closed"):
            await appending


async def test_a_question_for_the_members_ends_when_its_client_is_closed(group: Group) -> None:
    servers = group.servers
    for member in group.members.values():
        member.is_frozen = True
    async with asyncio.timeout(TEST_S):
        async with DLedgerClient(servers, "g0") as client:
            asking = asyncio.create_task(client.metadata())
            while not group["n0"].connections:  # noqa: ASYNC110 - the set has no event
                await asyncio.sleep(0)
        with pytest.raises(GroupUnreachableError, match="the client was closed"):
            await asking
        await disconnected(group)


async def test_a_question_whose_connection_is_being_made_leaves_none_open(group: Group) -> None:
    async with asyncio.timeout(TEST_S):
        async with DLedgerClient(group.servers, "g0") as client:
            asking = asyncio.create_task(client.metadata())
            await asyncio.sleep(0)
        with pytest.raises(GroupUnreachableError, match="the client was closed"):
            await asking
        await disconnected(group)


async def test_a_client_whose_closing_is_cancelled_leaves_nothing_open(group: Group) -> None:
    async def work() -> None:
        async with DLedgerClient(group.servers, "g0") as client:
            for member in group.members:
                group.elect(member)
                await client.append(b"x")
            asyncio.get_running_loop().call_soon(working.cancel)  # in the turn of the first await

    working = asyncio.create_task(work())
    await asyncio.wait([working], timeout=TEST_S)

    async with asyncio.timeout(TEST_S):
        await disconnected(group)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_batch_that_waits_for_its_turn_ends_when_its_client_is_closed(
    group: Group,
) -> None:
    group["n0"].script.extend([Fault.NO_ANSWER] * BATCH_MAX)
    async with asyncio.timeout(TEST_S):
        async with DLedgerClient(group.servers, "g0") as client:
            batches = [
                asyncio.create_task(client.append_batch([b"x"])) for _ in range(2 * BATCHES_MAX)
            ]
            await group["n0"].append_received.wait()
        ended = await asyncio.gather(*batches, return_exceptions=True)

    assert {type(each) for each in ended[:BATCHES_MAX]} == {list}
    assert {type(each) for each in ended[BATCHES_MAX:]} == {GroupUnreachableError}


async def disconnected(group: Group) -> None:
    while any(one.connections for one in group.members.values()):  # noqa: ASYNC110 - no event
        await asyncio.sleep(0)
