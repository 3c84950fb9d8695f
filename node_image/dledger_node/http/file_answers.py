"""Answers with a small file or a snapshot's file, as it is on the disk.

The file is opened once, so an answer contains one file even if the member replaces it meanwhile. A
removed file takes up space on the volume while it is open, so such an answer ends after
`REMOVED_S_MAX`, however slowly it is read.
"""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from typing import BinaryIO, Final

from aiohttp import web

from dledger_formats.http.status import DAMAGE_HEADER
from dledger_node import passing_reads
from dledger_node.http import byte_ranges
from dledger_node.http.places import LATER
from dledger_node.shortages import is_passing

REMOVED_S_MAX: Final = 60.0
"""Time for which a file is still sent after the member has removed it."""


async def send_file(
    request: web.Request,
    name: str,
    open_file: Callable[[str], BinaryIO],
    is_listed: Callable[[], Awaitable[bool]],
) -> web.StreamResponse:
    """Send a range of a file.

    `open_file` blocks and raises OSError. `is_listed` returns whether the member lists the file: a
    listed file that is not found has been lost by the disk.
    """
    try:
        opened = await asyncio.to_thread(_Opened, name, open_file)
    except FileNotFoundError as error:
        if await is_listed():
            raise unreadable(error) from error
        raise web.HTTPNotFound(text=f"this member has no file {name}\n") from error
    except OSError as error:
        raise unreadable(error) from error

    async def refuse(error: Exception) -> Exception:
        return unreadable(error)

    try:
        return await byte_ranges.send(request, name, opened.size_bytes, opened.read, refuse)
    finally:
        # Not awaited: closing the last reader of a removed file may free gigabytes.
        asyncio.get_running_loop().run_in_executor(None, opened.close)


def unreadable(error: Exception) -> web.HTTPServerError:
    """Return the error response for a file that the disk cannot read, or not now."""
    if is_passing(error):
        return web.HTTPServiceUnavailable(text=f"{error}\n", headers=LATER)
    return web.HTTPInternalServerError(text=f"{error}\n", headers={DAMAGE_HEADER: "unreadable"})


class _Opened:
    """An open file. All methods block; a lock prevents a close during a read."""

    def __init__(self, name: str, open_file: Callable[[str], BinaryIO]) -> None:
        self._name = name
        self._file = open_file(name)
        self._lock = threading.Lock()
        self._removed_at = 0.0
        self.size_bytes = os.fstat(self._file.fileno()).st_size

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to before `end`. Raises OSError."""
        with self._lock:
            return self._read(start, end)

    def _read(self, start: int, end: int) -> bytes:
        self._check_time()
        data = passing_reads.read(self._file.fileno(), start, end - start)
        if len(data) < end - start:
            raise OSError(f"{self._name} ends at byte {start + len(data)}")
        return data

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def _check_time(self) -> None:
        if os.fstat(self._file.fileno()).st_nlink:
            return
        now = time.monotonic()
        self._removed_at = self._removed_at or now
        if now - self._removed_at > REMOVED_S_MAX:
            raise OSError(f"{self._name} was removed {REMOVED_S_MAX:.0f} seconds ago")
