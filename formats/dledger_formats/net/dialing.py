"""How a client and a member open a connection to a name.

The loop's own `create_connection` looks names up as well, but uvloop's leaves the lookup's error to
nobody when the caller gives up meanwhile, and complains of it to whoever reads the terminal.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import TypeVar

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)


async def dial(
    make: Callable[[], ProtocolT], host: str, port: int
) -> tuple[asyncio.Transport, ProtocolT]:
    """Connect to the first of a name's addresses that takes it; OSError, the last one's.

    The name is looked up every time: a pod that comes back has another address.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    refused = OSError(f"{host} has no address")
    for *_, address in found:
        try:
            return await loop.create_connection(make, str(address[0]), int(address[1]))
        except OSError as error:
            refused = error
    raise refused
