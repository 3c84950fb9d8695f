"""Members and connections that fall silent: the client leaves them, and asks again on new ones."""

import asyncio
import contextlib

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.cluster import connection
from dledger_client.cluster.members import Timing
from dledger_client.errors import ClientError, OutcomeUnknownError
from dledger_fake_server.behavior import Fault
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


async def test_a_leader_is_reached_again_whose_host_had_vanished(group: Group) -> None:
    """The connection that the client has to it stays open, but nothing arrives on it."""
    timing = Timing(deadline_s=10, connect_timeout_s=0.2)
    async with DLedgerClient(group.servers, "g0", timing=timing) as client:
        for leader_id in ("n1", "n0"):
            group.elect(leader_id)
            await client.append(b"before")
        assert group["n1"].connections
        group["n1"].vanish()
        group.elect("n1")

        assert (await client.append(b"after")).index == 2


async def test_a_connection_that_is_not_used_is_closed_before_the_server_does_it(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append that the server reads no more, because it closes, would be of unknown outcome."""
    monkeypatch.setattr(connection, "IDLE_S", 0.2)
    async with (
        asyncio.timeout(TEST_S),
        DLedgerClient(group.servers, "g0") as client,
    ):
        await client.append(b"before")
        for member in group.members.values():
            for each in list(member.connections):
                await each.gone.wait()

        assert (await client.append(b"after")).index == 1


async def test_a_connection_on_which_a_response_is_awaited_is_used(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "IDLE_S", 0.1)
    async with (
        asyncio.timeout(TEST_S),
        DLedgerClient([group["n0"].address], "g0", timing=Timing(follow_wait_s=1.0)) as client,
    ):
        following = asyncio.create_task(anext(client.tail(0)))
        await group["n0"].followers.is_waiting.wait()
        used = set(group["n0"].connections)
        group["n0"].followers.is_waiting.clear()
        await group["n0"].followers.is_waiting.wait()
        assert group["n0"].connections == used
        group.append(b"x")

        assert (await following).body == b"x"


@pytest.mark.parametrize("follows", [True, False])
async def test_a_dead_connection_to_a_leader_that_stays_is_replaced(
    group: Group, follows: bool
) -> None:
    timing = Timing(connect_timeout_s=0.2, stall_s=0.1)
    servers = [group["n0"].address]
    async with (
        asyncio.timeout(TEST_S),
        DLedgerClient(servers, "g0", timing=timing, follow_leader=follows) as client,
    ):
        await client.append(b"before")
        group["n0"].vanish()
        while len(group.log) < 2:
            with contextlib.suppress(ClientError):
                await client.append(b"after", deadline_s=0.3)


@pytest.mark.parametrize("follows", [True, False])
async def test_a_leader_that_is_only_slow_to_append_keeps_its_connection(
    group: Group, follows: bool
) -> None:
    timing = Timing(request_timeout_s=1.0, connect_timeout_s=60, stall_s=0.1)
    group["n0"].script.append(Fault.NO_ANSWER)
    servers = [group["n0"].address]
    async with DLedgerClient(servers, "g0", timing=timing, follow_leader=follows) as client:
        await client.bounds()
        first = set(group["n0"].connections)
        with pytest.raises(OutcomeUnknownError, match="did not respond in time"):
            await client.append(b"x")

        assert group["n0"].connections == first
