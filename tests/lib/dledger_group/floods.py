"""A client that sends the same bytes as fast as it can, and discards the answers."""

import asyncio
import contextlib
from typing import Final

from dledger_formats.peers import split_address

FLOOD_S: Final = 2.0


async def flood(address: str, data: bytes) -> int:
    """Send bytes to an address again and again for FLOOD_S. Return the bytes of the answers."""
    host, port = split_address(address)
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 22)

    async def ask() -> None:
        while True:
            writer.write(data)
            await writer.drain()

    received = 0
    asking = asyncio.create_task(ask())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FLOOD_S):
            while chunk := await reader.read(1 << 22):
                received += len(chunk)
    asking.cancel()
    writer.transport.abort()
    await asyncio.wait([asking])
    return received
