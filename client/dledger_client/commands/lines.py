"""Reading lines from a file, pipe or terminal without blocking the event loop."""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import AsyncGenerator
from typing import Final

READ_BYTES: Final = 64 * 1024
READS_AHEAD_MAX: Final = 4
LOOP_CHECK_S: Final = 0.2
THREAD_NAME: Final = "dledger-lines"


class LineTooLongError(ValueError):
    """A line exceeds the maximum entry size."""


class UnendedLineError(ValueError):
    """The last line has no newline, so the rest of it may still be written."""


async def read_lines(
    file: int, line_bytes_max: int, *, must_end: bool = False
) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a file descriptor as they arrive, without their newlines.

    Raises LineTooLongError with the number of a line of more than `line_bytes_max` bytes, and with
    `must_end` UnendedLineError instead of yielding a last line without a newline. A daemon thread
    reads, because a read of a pipe or terminal may never return; the thread then ends with the
    process.
    """
    number = 0
    rest = b""
    async for chunk in read_chunks(file):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            number += 1
            _check(line, number, line_bytes_max)
            yield line
        _check(rest, number + 1, line_bytes_max)
    if rest and must_end:
        raise UnendedLineError(f"line {number + 1}")
    if rest:
        yield rest


def _check(line: bytes, number: int, line_bytes_max: int) -> None:
    if len(line) > line_bytes_max:
        raise LineTooLongError(f"line {number} exceeds {line_bytes_max} bytes")


async def read_chunks(file: int) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a file descriptor as they arrive; see `read_lines`. Raises OSError."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue(READS_AHEAD_MAX)
    thread = threading.Thread(
        target=_pump, name=THREAD_NAME, args=(os.dup(file), loop, chunks), daemon=True
    )
    thread.start()
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise chunk
        yield chunk


def _pump(
    file: int, loop: asyncio.AbstractEventLoop, chunks: "asyncio.Queue[bytes | OSError]"
) -> None:
    """Read chunks into the queue and wait while it is full; b"" marks the end.

    Closes `file`, which must be a duplicate for this thread: while a read waits, the caller may
    close its own descriptor, and the number may be reused for another file.
    """
    try:
        chunk: bytes | OSError = b"more"
        while chunk and not isinstance(chunk, OSError):
            try:
                chunk = os.read(file, READ_BYTES)
            except OSError as error:
                chunk = error
            if not _put(chunk, loop, chunks):
                return
    finally:
        os.close(file)


def _put(
    chunk: bytes | OSError,
    loop: asyncio.AbstractEventLoop,
    chunks: "asyncio.Queue[bytes | OSError]",
) -> bool:
    """Put a chunk into the queue from this thread. Return False if the loop has ended."""
    put = chunks.put(chunk)
    try:
        future = asyncio.run_coroutine_threadsafe(put, loop)
        while True:
            try:
                future.result(timeout=LOOP_CHECK_S)
            except TimeoutError:
                if loop.is_closed():  # it closed before it started the coroutine
                    put.close()
                    return False
            else:
                return True
    except (RuntimeError, concurrent.futures.CancelledError):
        put.close()
        return False
