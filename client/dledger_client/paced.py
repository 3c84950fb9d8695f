"""Writing to a file whose reader may pause: a thread writes, and the event loop keeps running.

A loop that blocks in a write would process no response and no signal until the reader continues.
"""

import asyncio
import os
import select
import threading
from contextlib import suppress
from typing import Final

HELD_BYTES_MAX: Final = 256 * 1024
"""Bytes that may wait for the reader before `write` waits, too."""
THREAD_NAME: Final = "dledger-write"


class PacedFile:
    """A file that a daemon thread writes in order, everything that is queued at once."""

    def __init__(self, file: int) -> None:
        """Take over a descriptor, which `close` closes. The first write starts the thread."""
        self._file = file
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        # Guarded by `_changed`: what the thread writes next, and whether it must end.
        self._held: list[bytes] = []
        self._is_closed = False
        # Used only in the event loop: the number of unwritten bytes, and why a write failed.
        self._unwritten_bytes = 0
        self._error: OSError | None = None
        self._progress = asyncio.Event()

    async def write(self, content: bytes) -> None:
        """Queue content, and wait while more than HELD_BYTES_MAX are unwritten. Raises OSError."""
        self.put(content)
        if self._unwritten_bytes > HELD_BYTES_MAX:
            await self._wait(HELD_BYTES_MAX)

    def put(self, content: bytes) -> None:
        """Queue content to be written. Raises the OSError of an earlier write."""
        if self._error is not None:
            raise self._error
        if not content:
            return
        self._unwritten_bytes += len(content)
        with self._changed:
            self._held.append(content)
            self._changed.notify()
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(
                target=self._work, name=THREAD_NAME, args=(loop,), daemon=True
            )
            self._thread.start()

    async def flush(self) -> None:
        """Wait until all queued content is written. Raises OSError."""
        await self._wait(0)

    def close(self) -> None:
        """Close the file once the thread's current write has ended; drop the queued content."""
        with self._changed:
            self._held.clear()
            self._is_closed = True
            self._changed.notify()
        if self._thread is None:
            os.close(self._file)
        elif self._error is not None or not self._unwritten_bytes:
            # The thread is not in a write, and a lock of the file must be released here.
            self._thread.join()

    async def _wait(self, unwritten_bytes_max: int) -> None:
        while self._error is None and self._unwritten_bytes > unwritten_bytes_max:
            self._progress.clear()
            await self._progress.wait()
        if self._error is not None:
            raise self._error

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        error: OSError | None = None
        try:
            while error is None and (contents := self._take()):
                raw = b"".join(contents)
                try:
                    _write_all(self._file, raw)
                except OSError as failed:
                    error = failed
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._note, len(raw), error)
        finally:
            os.close(self._file)

    def _take(self) -> list[bytes]:
        """Wait for contents and take all; return nothing once the file is closed."""
        with self._changed:
            while not self._held and not self._is_closed:
                self._changed.wait()
            taken, self._held = self._held, []
            return taken

    def _note(self, written_bytes: int, error: OSError | None) -> None:
        self._unwritten_bytes -= written_bytes
        self._error = error
        self._progress.set()


def _write_all(file: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        try:
            view = view[os.write(file, view) :]
        except BlockingIOError:  # another program has set O_NONBLOCK
            poll = select.poll()
            poll.register(file, select.POLLOUT)
            poll.poll()
