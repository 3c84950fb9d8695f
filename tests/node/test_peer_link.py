"""A link whose connection has just been lost."""

import asyncio
from typing import Any, cast

import uvloop

from dledger_node.raft.messages import HeartBeatRequest
from dledger_node.remoting.link_connection import LinkConnection
from dledger_node.traffic import Transferred

MESSAGE = HeartBeatRequest(sender="n0", receiver="n1", term=1, committed_index=-1, round=1)


def test_a_message_on_a_connection_that_was_just_lost_is_dropped_without_an_error() -> None:
    """The link has not noticed the loss yet. uvloop, which the node uses, raises then."""

    async def send_behind_the_cut() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            _, connection = await loop.create_connection(
                lambda: LinkConnection(cast("Any", None), "n1", Transferred()), "127.0.0.1", port
            )
            connection.close()
            await connection.lost
        finally:
            server.close()
        connection.send(MESSAGE)

    uvloop.run(send_behind_the_cut())
