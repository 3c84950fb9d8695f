"""The standard output of commands: status lines give way to it, and its reader may go away."""

import asyncio
import os
import select
import stat
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from dledger_client.commands.status_line import LINE
from dledger_formats import console


def prepare() -> None:
    """Make the standard streams safe to use; see `console.prepare`."""
    console.prepare(needs_output=True)


def write(text: str) -> None:
    """Write text to standard output. Raises BrokenPipeError or OutputError."""
    LINE.erase()
    console.write(text)


def write_bytes(content: bytes) -> None:
    """Write bytes to standard output, with the same errors. Do not mix this with text."""
    LINE.erase()
    console.write_bytes(content)


async def while_read(work: Coroutine[Any, Any, None]) -> None:
    """Do some work; raise BrokenPipeError once a pipe at standard output has no reader.

    A write finds that too, but work that waits may have nothing to write.
    """
    doing, gone = asyncio.ensure_future(work), _reader_gone()
    try:
        await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise BrokenPipeError
        doing.result()
    finally:
        gone.cancel()
        if not doing.done():
            doing.cancel()
            await asyncio.wait([doing])


def _reader_gone() -> "asyncio.Future[None]":
    """Return a future that is done once the reader has gone; never, unless the output is a pipe."""
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
        poll.register(output, 0)  # only what is always reported: an error
        poll.poll()
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell)

    threading.Thread(target=watch, name="dledger-output", daemon=True).start()
    return gone


def is_utf8() -> bool:
    """Whether standard output can express every character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
