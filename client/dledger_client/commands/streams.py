"""The standard output of commands, which erases status lines and whose reader may pause or exit."""

import asyncio
import os
import select
import stat
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from dledger_client.paced import PacedFile
from dledger_formats import console
from dledger_formats.console import OutputError, ReaderGoneError
from dledger_formats.status_line import LINE


def prepare() -> None:
    """Make the standard streams safe to use; see `console.prepare`."""
    console.prepare(needs_output=True)


def write(text: str) -> None:
    """Write text to standard output, unless nobody reads it. Raises OutputError."""
    LINE.erase()
    console.write(text)


class Output:
    """Standard output for a stream of lines or bodies, whose reader may pause for any time.

    Its methods raise ReaderGoneError or OutputError, also because of an earlier write.
    """

    def __init__(self) -> None:
        self._file: PacedFile | None = None  # None: tests replace the stream by a simpler one
        with suppress(OSError, ValueError, AttributeError):
            self._file = PacedFile(os.dup(sys.stdout.fileno()))

    async def write(self, content: bytes) -> None:
        """Queue content to be written soon; wait while the reader is far behind."""
        LINE.erase()
        if self._file is None:
            console.write_bytes(content)
            return
        with console.raised_as_output_error():
            await self._file.write(content)

    async def flush(self) -> None:
        """Wait until everything is written."""
        if self._file is None:
            console.flush()
            return
        with console.raised_as_output_error():
            await self._file.flush()

    def close(self) -> None:
        """Drop unwritten content and close the output."""
        if self._file is not None:
            self._file.close()


@asynccontextmanager
async def output() -> AsyncIterator[Output]:
    """Open standard output; flush it at the end, except after a cancellation."""
    opened = Output()
    try:
        try:
            yield opened
        except Exception:  # what came before the error belongs to the output
            with suppress(ReaderGoneError, OutputError):
                await opened.flush()
            raise
        await opened.flush()
    finally:
        opened.close()


async def while_read(work: Coroutine[Any, Any, None]) -> None:
    """Await `work`; raise ReaderGoneError once a pipe at standard output has no reader.

    A write would detect that, too, but work that waits may have nothing to write.
    """
    doing, gone = asyncio.ensure_future(work), _reader_gone()
    try:
        await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise ReaderGoneError
        doing.result()
    finally:
        gone.cancel()
        if not doing.done():
            doing.cancel()
            await asyncio.wait([doing])


def _reader_gone() -> "asyncio.Future[None]":
    """Return a future that is done once the reader of a pipe has gone; never for other outputs."""
    loop = asyncio.get_running_loop()
    gone: asyncio.Future[None] = loop.create_future()
    try:
        output = sys.stdout.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(output).st_mode)
    except (OSError, ValueError, AttributeError):  # tests replace the streams by simpler ones
        return gone
    if not is_pipe:
        return gone

    def tell() -> None:
        if not gone.done():
            gone.set_result(None)

    def watch() -> None:
        poll = select.poll()
        poll.register(output, 0)  # only errors, which are always reported
        poll.poll()
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell)

    threading.Thread(target=watch, name="dledger-output", daemon=True).start()
    return gone


def is_utf8() -> bool:
    """Return whether standard output can represent every character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
