"""The registration of a producer, and the appends that wait for it."""

import asyncio

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.errors import GroupUnreachableError
from dledger_fake_server.group import Group


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_an_append_with_a_short_deadline_ends_no_other(
    group: Group, is_cancelled: bool
) -> None:
    """The registration has the deadline of the append that waits first."""
    group.elect(None)
    async with DLedgerClient(group.servers, "g0", idempotent=True) as client:
        short = asyncio.create_task(client.append(b"short", deadline_s=0.3))
        patient = asyncio.create_task(client.append(b"patient", deadline_s=10))
        await group["n0"].metadata_requested.wait()
        if is_cancelled:
            short.cancel()
            await asyncio.wait([patient], timeout=0.5)
        else:
            with pytest.raises(GroupUnreachableError):
                await short
            await asyncio.wait([patient], timeout=0.2)
        group.elect("n1")
        await patient

    assert group.log == [b"patient"]
