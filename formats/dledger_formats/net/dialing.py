"""Opening a connection to a name, for clients and members.

The event loop's own `create_connection` also looks names up. But if its caller is cancelled during
the lookup, uvloop never retrieves the lookup's error and logs it as unhandled.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)

NEXT_ADDRESS_S: Final = 0.25
"""The "Connection Attempt Delay" of RFC 8305."""
_Address: TypeAlias = tuple[Any, ...]
"""Host and port, and two further numbers for IPv6."""


async def dial(
    make: Callable[[], ProtocolT], host: str, port: int
) -> tuple[asyncio.Transport, ProtocolT]:
    """Connect to the first address of a name that accepts. Raises the last address's OSError,
    or an OSError for a text that is not a host name.

    The name is looked up every time, because a restarted pod has another address. The name of a
    whole group has the addresses of all pods, also of one whose host has vanished: an address that
    is silent keeps the next one waiting for NEXT_ADDRESS_S only.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a part between two dots is empty, or longer than 63 bytes
        raise OSError(f"{host} is no host name") from error
    addresses = list(dict.fromkeys(address for *_, address in found))
    if not addresses:
        raise OSError(f"the name {host} has no address")
    if len(addresses) == 1:
        return await loop.create_connection(make, str(addresses[0][0]), int(addresses[0][1]))
    opened = await _open_first(addresses)
    try:
        return await loop.create_connection(make, sock=opened)
    except BaseException:
        opened.close()
        raise


async def _open_first(addresses: Sequence[_Address]) -> socket.socket:
    """Return a socket that is connected to the first of several addresses that accepts."""
    loop, rest = asyncio.get_running_loop(), iter(addresses)
    attempts: set[asyncio.Task[socket.socket]] = set()
    refused: BaseException | None = None
    try:
        while (address := next(rest, None)) is not None or attempts:
            if address is not None:
                attempts.add(loop.create_task(_open(address)))
            done, _ = await asyncio.wait(
                attempts,
                timeout=None if address is None else NEXT_ADDRESS_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for attempt in done:
                attempts.discard(attempt)
                refused = attempt.exception()
                if refused is None:
                    return attempt.result()
                if not isinstance(refused, OSError):
                    raise refused
    finally:
        for attempt in attempts:
            attempt.cancel()
            attempt.add_done_callback(_close_opened)
    assert refused is not None
    raise refused


async def _open(address: _Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in str(address[0]) else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        await asyncio.get_running_loop().sock_connect(opened, address)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        opened.close()
        raise
    return opened


def _close_opened(attempt: asyncio.Task[socket.socket]) -> None:
    """Close the socket of an attempt that succeeded although it was not needed any more."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


def reason_of(error: Exception) -> str:
    """Return why there is no connection, in the system's words; empty if it took too long."""
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)  # asyncio says which call failed instead
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
