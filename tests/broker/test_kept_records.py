"""The records of a member and of its group at a name server: each has a connection of its own."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from dledger_broker_client.name_server import NameServer
from dledger_broker_client.registering import GROUP_ADDRESS, MEMBERS, Registering
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.answers import encode_answer
from dledger_formats.rocketmq.codes import ResponseCode


@pytest.fixture
def name_server() -> Iterator[NameServer]:
    server = NameServer()
    yield server
    server.close()


def test_each_record_has_a_connection_of_its_own(name_server: NameServer) -> None:
    async def play() -> None:
        async with Registering(name_server.address) as member:
            await member.until_registered()
            assert name_server.open == 1, "another member keeps the address of the group"
            member.become_keeper()
            await member.until(lambda: name_server.addresses[-1] == GROUP_ADDRESS, "it is kept")
            assert name_server.open == 2
            assert name_server.ids[-1] == 0

    asyncio.run(play())
    assert name_server.addresses == [MEMBERS["n1"], GROUP_ADDRESS]


def test_members_that_clients_cannot_reach_register_only_the_address_of_the_group(
    name_server: NameServer,
) -> None:
    async def play() -> None:
        async with Registering(name_server.address, register_members=False) as member:
            await member.until_registered()
            member.become_keeper()
            await member.until(lambda: bool(name_server.requests), "it is kept")
            member.change()
            member.become_keeper()
            await member.until(lambda: name_server.terms == [1, 2], "its change is told")
            member.servers.leave()

    asyncio.run(play())
    assert {*name_server.addresses} == {GROUP_ADDRESS}


def test_a_record_that_another_member_keeps_is_not_removed(name_server: NameServer) -> None:
    """The end of the connection would remove it, if the other member has not registered it yet."""

    async def play() -> None:
        async with Registering(name_server.address) as member:
            member.become_keeper()
            await member.until(lambda: len(name_server.addresses) == 2, "both are registered")
            member.group = None
            member.servers.tick()
            member.servers.repeat_group()
            member.change()
            await member.until(lambda: len(name_server.addresses) == 3, "its own is told again")
            assert name_server.open == 2
            member.servers.leave()
            await member.until(lambda: name_server.open == 1, "its own is given up")
            member.servers.close()
            await member.servers.closed()
            await member.until(lambda: name_server.open == 0, "both are given up")

    asyncio.run(play())
    assert name_server.addresses[2:] == [MEMBERS["n1"]]


def test_a_registration_under_way_ends_before_a_member_that_leaves_is_closed(
    name_server: NameServer,
) -> None:
    """A name server that handles it after the end of the connection keeps the member for 120 s."""
    may_answer = threading.Event()

    def late(request: RemotingCommand) -> bytes:
        may_answer.wait(10)
        return encode_answer(request.opaque, ResponseCode.SUCCESS)

    async def play() -> None:
        async with Registering(name_server.address) as member:
            await member.until_registered()
            name_server.answer = late
            member.change()
            await member.until(lambda: len(name_server.requests) == 2, "it registers again")
            member.servers.leave()
            closed = asyncio.create_task(member.servers.closed())
            await asyncio.wait({closed}, timeout=0.1)
            member.servers.close()
            done, _ = await asyncio.wait({closed}, timeout=0.2)
            assert not done
            may_answer.set()
            await closed

    asyncio.run(play())


def test_what_another_member_keeps_is_no_failure_of_this_one(name_server: NameServer) -> None:
    def refusing(request: RemotingCommand) -> bytes:
        return encode_answer(request.opaque, ResponseCode.SYSTEM_ERROR, remark="not yet")

    name_server.answer = refusing

    async def play() -> None:
        async with Registering(name_server.address) as member:
            member.become_keeper()
            await member.until(lambda: GROUP_ADDRESS in name_server.addresses, "it is refused")
            member.group = None
            name_server.answer = lambda request: encode_answer(request.opaque, 0)
            member.change()
            await member.until_registered()
            assert not member.counters.registration_problems

    asyncio.run(play())


def test_the_address_of_the_group_is_registered_again_when_a_member_is_lost(
    name_server: NameServer,
) -> None:
    async def play() -> None:
        async with Registering(name_server.address) as member:
            member.become_keeper()
            await member.until(lambda: len(name_server.addresses) == 2, "both are registered")
            member.servers.repeat_group()
            await member.until(lambda: len(name_server.addresses) == 3, "it is told again")

    asyncio.run(play())
    assert name_server.addresses[2] == GROUP_ADDRESS


def test_another_address_of_the_group_gets_another_connection(name_server: NameServer) -> None:
    """A name server forgets only one address of a connection."""

    async def play() -> None:
        async with Registering(name_server.address) as member:
            member.become_keeper()
            await member.until(lambda: len(name_server.addresses) == 2, "both are registered")
            assert member.group is not None
            member.group = member.group._replace(address="127.0.0.1:5")
            member.servers.tick()
            await member.until(lambda: len(name_server.addresses) == 3, "the other one is told")
            await member.until(lambda: name_server.open == 2, "the first connection is closed")

    asyncio.run(play())
    assert name_server.addresses[2] == "127.0.0.1:5"
    assert name_server.connections == 3
