"""Leaders of an older term than one that the client has heard of: it does not follow them."""

import asyncio

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.errors import GroupUnreachableError
from dledger_fake_server.group import Group


async def test_the_client_ignores_a_deposed_leader_of_an_older_term(group: Group) -> None:
    async with DLedgerClient(group.servers, "g0") as client:
        group.elect("n1")
        await client.append(b"x")
        group["n2"].leader_hint, group["n2"].stale_term = "n2", 1
        group.elect(None)
        waiting = asyncio.create_task(client.append(b"y"))
        group["n2"].metadata_requested.clear()
        await group["n2"].metadata_requested.wait()
        group.elect("n0")
        await waiting

    assert (group["n0"].appends, group["n2"].appends) == ([b"y"], [])


async def test_the_error_says_that_the_only_leader_is_one_of_an_older_term(group: Group) -> None:
    async with DLedgerClient(group.servers, "g0") as client:
        group.elect("n1")
        await client.append(b"x")
        for member_id in ("n0", "n1"):
            await group[member_id].stop()
        await client.metadata()  # n2 answers, and the lost connection is noticed
        group["n2"].leader_hint, group["n2"].stale_term = "n2", 1
        with pytest.raises(GroupUnreachableError, match="says that it leads term 1, and there is"):
            await client.append(b"y", deadline_s=0.5)
