"""Clients that read from followers of a real group, and what they get while members fail."""

import asyncio
import contextlib

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from tools.groups.node_group import NodeGroup

COUNT = 3000


def client_of(group: NodeGroup, read_from: str, consistency: str = "linearizable") -> DLedgerClient:
    return DLedgerClient(
        group.servers, "g", read_from=read_from, consistency=consistency, at_least_once=True
    )


def chosen_member(client: DLedgerClient) -> str | None:
    """Return the member that gets the client's reads; None while the leader gets them instead."""
    assert client._session is not None
    assert client._session._reads is not None
    connection = client._session._reads._connection
    return connection.member_id if connection is not None else None


def member_of(client: DLedgerClient) -> str:
    """Return the member that gets the client's reads."""
    member = chosen_member(client)
    assert member is not None
    return member


async def append(client: DLedgerClient, count: int) -> list[bytes]:
    bodies = [b"%d" % number for number in range(count)]
    outcomes = await client.append_batch(bodies)
    assert all(isinstance(outcome, Acknowledged) for outcome in outcomes)
    return bodies


async def test_every_kind_of_read_is_answered_by_a_follower(steady_group: NodeGroup) -> None:
    master = steady_group.master()
    async with client_of(steady_group, "followers") as client:
        first = (await client.bounds()).end_index + 1
        bodies = await append(client, COUNT)
        last = first + COUNT - 1
        found = [entry.body async for entry in client.get_range(first)]
        async with contextlib.aclosing(client.tail(last)) as entries:
            followed = await anext(entries)

        assert found == bodies
        assert followed.index == last
        assert (await client.get(first)).body == bodies[0]
        assert (await client.bounds()).end_index == last
        assert member_of(client) != master


@pytest.mark.parametrize("read_from", ["followers", "any"])
async def test_a_read_sees_every_append_that_was_acknowledged_before_it(
    steady_group: NodeGroup, read_from: str
) -> None:
    async with client_of(steady_group, read_from) as client:
        for _ in range(200):
            appended = await client.append(b"")
            assert (await client.bounds()).end_index >= appended.index
            assert (await client.get(appended.index)).index == appended.index


async def test_a_stale_read_may_lack_what_was_just_acknowledged_but_gets_it_soon(
    steady_group: NodeGroup,
) -> None:
    async with client_of(steady_group, "followers", "stale") as client:
        appended = await client.append(b"")
        async with asyncio.timeout(20):
            while (await client.bounds()).end_index < appended.index:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_tail_at_a_follower_gets_each_entry_as_it_is_appended(
    steady_group: NodeGroup,
) -> None:
    async with client_of(steady_group, "followers") as client:
        first = (await client.bounds()).end_index + 1
        async with contextlib.aclosing(client.tail(first)) as entries:
            for number in range(20):
                appended = await client.append(b"%d" % number)
                entry = await anext(entries)
                assert (entry.index, entry.body) == (appended.index, b"%d" % number)


async def test_a_range_goes_on_elsewhere_when_its_member_dies(group: NodeGroup) -> None:
    async with client_of(group, "followers") as client:
        bodies = await append(client, 8000)
        first = (await client.bounds()).end_index - len(bodies) + 1
        member = member_of(client)
        found = []
        async for batch in client.read_batches(first):
            if not found:
                group.kill(member)
            found += batch.bodies

        assert found == bodies
        assert (await client.get(first)).body == bodies[0]
        assert chosen_member(client) != member


async def test_a_tail_goes_on_elsewhere_when_its_member_is_stopped(group: NodeGroup) -> None:
    async with client_of(group, "followers") as client:
        await client.append(b"")
        first = (await client.bounds()).end_index + 1
        async with contextlib.aclosing(client.tail(first)) as entries:
            for number in range(10):
                if number == 5:
                    group.freeze(member_of(client))
                appended = await client.append(b"%d" % number)
                entry = await anext(entries)
                assert (entry.index, entry.body) == (appended.index, b"%d" % number)


async def test_a_follower_of_a_stopped_leader_gives_no_old_answer(group: NodeGroup) -> None:
    old = group.master()
    async with client_of(group, "followers") as client:
        await client.append(b"before")
        await client.bounds()
        group.freeze(old)
        acknowledged = await client.append(b"after")
        for _ in range(50):
            assert (await client.bounds()).end_index >= acknowledged.index
        group.thaw(old)
        for _ in range(50):
            assert (await client.bounds()).end_index >= acknowledged.index


async def test_without_a_majority_only_stale_reads_are_answered(group: NodeGroup) -> None:
    master = group.master()
    [one, other] = [member for member in group.peers if member != master]
    async with client_of(group, "leader") as client:
        appended = await client.append(b"kept")
    async with client_of(group, "followers") as client:
        await client.bounds()  # the followers know that it is committed
    group.kill(master)
    group.kill(other)
    address = [group.peers[one]]
    timing = Timing(deadline_s=2)

    async with DLedgerClient(
        address, "g", read_from="any", consistency="stale", timing=timing
    ) as client:
        found = (await client.bounds()).end_index
        assert found in (appended.index - 1, appended.index)
        assert (await client.get(0)).index == 0
    async with DLedgerClient(address, "g", read_from="any", timing=timing) as client:
        assert (await client.get(0)).index == 0, "a committed entry never changes"
        with pytest.raises(Exception, match="no leader"):
            await client.bounds()
