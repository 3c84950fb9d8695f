"""A notice on standard error while a command waits for its group, or for who uses a named pipe.

On a terminal, the notice is one line that is overwritten, and erased at the end; it hides a
progress bar. Elsewhere, it is one line for each time that the group cannot be used, and further
ones when the reason changes, at growing distances.
"""

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from tqdm import tqdm

from dledger_client.commands import progress
from dledger_formats.status_line import LINE

AFTER_S: Final = 1.0
"""How long a request may wait before the notice appears."""
POLL_S: Final = 0.25
READING: Final = "reading"
WRITING: Final = "writing"
AGAIN_GROWTH: Final = 2.0
"""How much longer than at its last line a request has waited when a further one may be written."""


@contextlib.asynccontextmanager
async def shown(
    group: str, deadline_s: float, trouble: Callable[[], str | None]
) -> AsyncIterator[None]:
    """Show what a command waits for, as long as `trouble` returns it, until the block ends."""
    async with _running(_Notice(f"group {group}", f" of {deadline_s:g} s", trouble)):
        yield


@contextlib.asynccontextmanager
async def opening(file: str | Path, use: str) -> AsyncIterator[None]:
    """Show, until the block ends, that a named pipe is opened, which waits for its other end.

    `use` is what the other end does: READING or WRITING. Other files are opened at once.
    """
    if not _is_named_pipe(file):
        yield
        return
    trouble = f"no process has opened this named pipe for {use}"
    async with _running(_Notice(str(file), "", lambda: trouble)):
        yield


def _is_named_pipe(file: str | Path) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(file).st_mode)
    except (OSError, ValueError):  # a NUL in the path is a ValueError
        return False


@contextlib.asynccontextmanager
async def _running(notice: "_Notice") -> AsyncIterator[None]:
    task = asyncio.create_task(notice.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Notice:
    def __init__(self, awaited: str, limit: str, trouble: Callable[[], str | None]) -> None:
        self._awaited = awaited
        self._limit = limit
        self._trouble = trouble
        self._is_shown = False
        """Whether this notice has the line of the terminal; another one may have it."""
        self._since_s: float | None = None
        self._said = ""
        """The trouble that the last line named; empty before the first."""
        self._said_s = 0.0
        """How long the request had waited then."""

    async def run(self) -> None:
        """Check for trouble several times a second until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(POLL_S)
                self._look(loop.time())
        finally:
            self._erase()

    def _look(self, now_s: float) -> None:
        trouble = self._trouble()
        if trouble is None:
            self._since_s, self._said, self._said_s = None, "", 0.0
            self._erase()
            return
        if self._since_s is None:
            self._since_s = now_s - POLL_S
        waited_s = now_s - self._since_s
        if waited_s < AFTER_S:
            return
        times = f"{int(waited_s)} s{self._limit}"
        text = f"dledger: waiting for {self._awaited}, {times}: {trouble}"
        if LINE.can_be_shown:
            self._is_shown = True
            LINE.show(text, f"waiting, {times}: {trouble}")
        elif trouble != self._said and waited_s >= AGAIN_GROWTH * self._said_s:
            self._said, self._said_s = trouble, waited_s
            with tqdm.external_write_mode(file=sys.stderr), contextlib.suppress(OSError):
                sys.stderr.write(text + "\n")
                sys.stderr.flush()

    def _erase(self) -> None:
        """Erase the notice, and show the bars that it has covered."""
        if self._is_shown and LINE.erase():
            for bar in progress.shown_bars():
                bar.refresh()
        self._is_shown = False
