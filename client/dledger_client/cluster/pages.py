"""Fetching one page from a member's HTTP port."""

import asyncio
import contextlib
from http import HTTPStatus
from typing import Final

from dledger_client.cluster.addresses import ServerAddress
from dledger_client.errors import ClientError
from dledger_formats.net.dialing import reason_of

PAGE_BYTES_MAX: Final = 1024 * 1024
READ_BYTES: Final = 64 * 1024


class PageError(ClientError):
    """A page could not be fetched; the message gives the reason without the address."""


async def get_page(address: ServerAddress, path: str, timeout_s: float) -> bytes:
    """Return the body of a page of at most 1 MiB. Raises PageError if that fails.

    The request is HTTP 1.0, so that the body ends with the connection.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _get(address, path)
    except TimeoutError as error:
        raise PageError(f"no response within {timeout_s:.2g} s") from error
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise PageError("not an HTTP response") from error
    except OSError as error:
        raise PageError(reason_of(error)) from error


async def _get(address: ServerAddress, path: str) -> bytes:
    reader, writer = await asyncio.open_connection(address.host, address.port, limit=READ_BYTES)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        protocol, _, rest = head.partition(b" ")
        status = rest[:3]
        if not protocol.startswith(b"HTTP/") or not status.isdigit():
            raise PageError("not an HTTP response")
        if int(status) != HTTPStatus.OK:
            raise PageError(f"HTTP {int(status)}")
        body = bytearray()
        while chunk := await reader.read(READ_BYTES):
            body += chunk
            if len(body) > PAGE_BYTES_MAX:
                raise PageError(f"the page is longer than {PAGE_BYTES_MAX} bytes")
        return bytes(body)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
