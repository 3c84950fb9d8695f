"""Answers with a range of a file's bytes, in chunks, so that a reader costs little memory."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from aiohttp import web

from dledger_node.errors import StoreError
from dledger_node.http.request_turns import TURNS
from dledger_node.limited_log import LineBudget

logger = logging.getLogger(__name__)

CHUNK_BYTES: Final = 256 * 1024
"""Bytes of a file that are held in memory for one reader while it does not read them."""

_LINES: Final = LineBudget()
"""Limits the log lines about damaged bytes, however many requests ask for them."""

Read: TypeAlias = Callable[[int, int], bytes]
"""Returns the bytes from a start to before an end; blocks. Raises StoreError or OSError."""
Refuse: TypeAlias = Callable[[Exception], Awaitable[Exception]]
"""Returns the error response for a failed read of the first bytes, before a status is sent."""


async def send(
    request: web.Request, name: str, size_bytes: int, read: Read, refuse: Refuse
) -> web.StreamResponse:
    """Send the range that a request asks for, of a file with `size_bytes` readable bytes."""
    try:
        wanted = request.http_range
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    start, end, _ = wanted.indices(size_bytes)
    partial = wanted.start is not None or wanted.stop is not None
    if start >= end and (partial or size_bytes):
        headers = {"Content-Range": f"bytes */{size_bytes}"}
        raise web.HTTPRequestRangeNotSatisfiable(headers=headers)
    first = b""
    if start < end:
        try:
            first = await asyncio.to_thread(read, start, min(end, start + CHUNK_BYTES))
        except (StoreError, OSError) as error:
            _tell(name, error)
            raise await refuse(error) from error
        await request.app[TURNS].turn()  # threads may have read for many requests by now
    response = web.StreamResponse(status=206 if partial else 200)
    response.content_type = "application/octet-stream"
    response.content_length = end - start
    if partial:
        response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{size_bytes}"
    await response.prepare(request)
    await response.write(first)
    for begin in range(start + len(first), end, CHUNK_BYTES):
        stop = min(end, begin + CHUNK_BYTES)
        try:
            data = await asyncio.to_thread(read, begin, stop)
        except (StoreError, OSError) as error:
            _tell(name, error)
            if request.transport is not None:
                request.transport.abort()  # the reader must not wait for the rest
            return response
        await response.write(data)
    await response.write_eof()
    return response


def _tell(name: str, error: Exception) -> None:
    admitted = _LINES.admit("unreadable")
    if admitted is not None:
        logger.warning("%s cannot be sent: %s%s", name, error, admitted)
