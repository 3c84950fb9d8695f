"""Standard input, output and error: closed ones, full ones, and ones whose reader has gone."""

import asyncio
import os
import select
import stat
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from dledger_client.commands.status_line import LINE

_STANDARD: Final = (0, 1, 2)
_OUTPUT: Final = 1


class OutputError(Exception):
    """Standard output cannot be written, for another reason than that its reader has gone."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write to standard output: {error.strerror or error}")


def prepare() -> None:
    """Make the standard streams safe to use.

    A closed one gets /dev/null, because its number would otherwise be given to a socket. Writing to
    a standard output that was closed fails nevertheless. Text that the locale cannot express is
    escaped. `sys.stdin` stays None if standard input is closed.
    """
    for number in _STANDARD:
        try:
            os.fstat(number)
        except OSError:
            flags = os.O_RDONLY if number == _OUTPUT else os.O_RDWR
            os.open(os.devnull, flags)  # gets the lowest number that is free: this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - it is open until the end
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # tests replace the streams by simpler ones
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def write(text: str) -> None:
    """Write text to standard output. Raises BrokenPipeError or OutputError."""
    LINE.erase()
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error) from error


def write_bytes(content: bytes) -> None:
    """Write bytes to standard output, with the same errors. Do not mix this with text."""
    LINE.erase()
    try:
        sys.stdout.buffer.write(content)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error) from error


def flush() -> None:
    """Flush standard output. Raises BrokenPipeError or OutputError."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error) from error


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


def discard_output() -> None:
    """Send what was not written yet, and all further output, nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_utf8() -> bool:
    """Whether standard output can express every character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
