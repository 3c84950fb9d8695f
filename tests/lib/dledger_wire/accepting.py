"""The end of an asyncio server."""

import asyncio

HAND_OVER_TURNS = 3
"""Turns of the loop that asyncio needs to hand over an accepted connection."""


async def close_accepting(server: asyncio.Server) -> None:
    """Close the listening sockets once each accepted connection has its protocol.

    When a server closes, asyncio's own loop leaks a connection that it has accepted and not handed
    over. The warning about it would fail another test.
    """
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.SelectorEventLoop):
        for listening in server.sockets:
            loop.remove_reader(listening.fileno())
    for _ in range(HAND_OVER_TURNS):
        await asyncio.sleep(0)
    server.close()
