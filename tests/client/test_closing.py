"""Closing a client while calls are under way: each of them ends, and nothing stays open."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.errors import GroupUnreachableError
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
