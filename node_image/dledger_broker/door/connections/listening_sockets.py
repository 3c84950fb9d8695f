"""Listening sockets that the kernel closes before all others if this process is killed.

Linux closes the files of a killed process from the highest number down. A listening socket would
have a low number, since it is opened before any connection. So the clients' connections would be
reset first. A client that connects again at once could then reach the dying process, whose kernel
still accepts connections, and resets them a moment later. A producer of RocketMQ has three tries
for a send, and would lose two of them in this way within milliseconds.
"""

import asyncio
import errno
import fcntl
import resource
import socket
from collections.abc import Callable
from typing import Final

BACKLOG: Final = 1024
NUMBER_MAX: Final = 65_535
"""The highest file number to use. The kernel's table of a process's files is as long as its highest
number, and takes memory.
"""
LACKING: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""Errors of a machine without an address, or without addresses of that family."""
ROOM: Final = 64
"""How many of the highest numbers are for listening sockets."""


async def accept_at(
    accept: Callable[[], asyncio.Protocol], host: str | None, port: int, *, is_shared: bool
) -> list[asyncio.Server]:
    """Accept connections at every address of a host.

    If the port is shared, other processes may listen there, too. Addresses that this machine does
    not have are left out, unless it has none of them. Raises OSError.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    servers: list[asyncio.Server] = []
    lacking: OSError | None = None
    try:
        for family, address in dict.fromkeys((each[0], each[4]) for each in found):
            try:
                listening = _listen(family, address, is_shared=is_shared)
            except OSError as error:
                if error.errno not in LACKING:
                    raise
                lacking = error
            else:
                servers.append(await _serve(accept, listening))
        if lacking is not None and not servers:
            raise lacking
    except BaseException:
        for server in servers:
            server.close()
        raise
    return servers


async def _serve(
    accept: Callable[[], asyncio.Protocol], listening: socket.socket
) -> asyncio.Server:
    """Accept connections at a listening socket, which is closed if that fails."""
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(accept, sock=listening, backlog=BACKLOG)
    except BaseException:
        listening.close()
        raise


def _listen(family: int, address: tuple[object, ...], *, is_shared: bool) -> socket.socket:
    """Return a listening socket with a high number, if one is free."""
    low = socket.create_server(address, family=family, backlog=BACKLOG, reuse_port=is_shared)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = NUMBER_MAX
    lowest = max(0, min(limit, NUMBER_MAX) - ROOM)
    try:
        high = fcntl.fcntl(low.fileno(), fcntl.F_DUPFD_CLOEXEC, lowest)
    except OSError:  # all of them are taken
        return low
    low.close()
    return socket.socket(fileno=high)
