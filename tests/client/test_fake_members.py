"""The members that tests of the client play."""

import asyncio
import socket

import pytest

from dledger_fake_server.group import Group
from dledger_fake_server.listener import HOST


async def test_no_other_process_gets_the_port_of_a_member_that_is_stopped(group: Group) -> None:
    """A client that asked the stopped member would find another one."""
    port = group["n0"].port
    await group["n0"].stop()

    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((HOST, port))
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(HOST, port)
    await group["n0"].start()

    assert group["n0"].port == port


async def test_a_member_that_stops_closes_a_connection_that_it_has_just_accepted(
    group: Group,
) -> None:
    with socket.create_connection((HOST, group["n0"].port)) as client:
        for _ in range(2):
            await asyncio.sleep(0)  # asyncio has accepted it, and not handed it over yet
        await group["n0"].stop()

        client.settimeout(5)
        assert client.recv(1) == b""
