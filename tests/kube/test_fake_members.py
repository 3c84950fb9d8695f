"""The members that tests of the operator play."""

import asyncio
import gc
import socket

from dledger_kube.fake_members import members


async def test_a_member_that_falls_silent_closes_a_connection_that_it_has_just_accepted() -> None:
    async with members(1) as ([node], _):
        with socket.create_connection((node.ip, node.port)) as client:
            for _turn in range(2):
                await asyncio.sleep(0)  # asyncio has accepted it, and not handed it over yet
            await node.fall_silent()
            gc.collect()  # a connection that nobody has is reported

            client.settimeout(5)
            assert client.recv(1) == b""
