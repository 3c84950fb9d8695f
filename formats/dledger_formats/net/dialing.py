"""Opening a connection to a name, for clients and members.

The event loop's own `create_connection` also looks names up. But if its caller is cancelled during
the lookup, uvloop never retrieves the lookup's error and logs it as unhandled.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import TypeVar

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)


async def dial(
    make: Callable[[], ProtocolT], host: str, port: int
) -> tuple[asyncio.Transport, ProtocolT]:
    """Connect to the first address of a name that accepts. Raises the last address's OSError,
    or an OSError for a text that is not a host name.

    The name is looked up every time, because a restarted pod has another address.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a part between two dots is empty, or longer than 63 bytes
        raise OSError(f"{host} is no host name") from error
    refused = OSError(f"the name {host} has no address")
    for *_, address in found:
        try:
            return await loop.create_connection(make, str(address[0]), int(address[1]))
        except OSError as error:
            refused = error
    raise refused


def reason_of(error: Exception) -> str:
    """Return why there is no connection, in the system's words; empty if it took too long."""
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)  # asyncio says which call failed instead
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
