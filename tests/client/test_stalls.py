"""Members that fall silent: the client leaves them."""

import asyncio

from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import ClientError
from dledger_fake_server.group import Group

TEST_S = 20


async def test_the_client_leaves_a_leader_to_which_nothing_can_be_written(group: Group) -> None:
    """All that was written expires at once, and before there is a next leader."""
    timing = Timing(deadline_s=10, request_timeout_s=0.3, stall_s=0.1)
    async with DLedgerClient(group.servers, "g0", timing=timing) as client:
        await client.append(b"before")
        group["n0"].stop_reading()
        appends = [asyncio.ensure_future(client.append(bytes(1 << 20))) for _ in range(30)]
        await asyncio.wait(appends, return_when=asyncio.FIRST_COMPLETED)
        for each in appends:
            each.cancel()
        await asyncio.gather(*appends, return_exceptions=True)
        group.elect("n1")

        assert (await client.append(b"after")).index == 1


async def test_the_client_leaves_a_silent_leader_although_every_deadline_is_short(
    group: Group,
) -> None:
    timing = Timing(stall_s=0.3)
    async with (
        asyncio.timeout(TEST_S),
        DLedgerClient(group.servers, "g0", timing=timing) as client,
    ):
        await client.append(b"before")
        group["n0"].is_frozen = True
        group.elect("n1")
        while not group["n1"].appends:
            try:
                await client.append(b"x", deadline_s=0.1)
            except ClientError:
                assert len(group["n0"].appends) < 20
