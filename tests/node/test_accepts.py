"""New connections: the node's event loop accepts few of them in a turn."""

import asyncio
import contextlib
import socket
from collections import Counter

import uvloop

CONNECTIONS = 100


def test_a_crowd_that_connects_at_once_is_accepted_one_connection_a_turn() -> None:
    """libuv accepts one connection each time it polls; asyncio's own loop accepts the backlog."""
    accepted: Counter[int] = Counter()
    turn = 0

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted[turn] += 1
            transport.close()

    async def accept_all() -> None:
        nonlocal turn
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(Accepted, "127.0.0.1", 0, backlog=CONNECTIONS)
        with contextlib.ExitStack() as opened:
            for _ in range(CONNECTIONS):
                crowd = socket.create_connection(listener.sockets[0].getsockname())
                opened.enter_context(crowd)
            while accepted.total() < CONNECTIONS:
                turn += 1
                await asyncio.sleep(0)
        listener.close()
        await listener.wait_closed()

    uvloop.run(accept_all())

    assert max(accepted.values()) <= 2
