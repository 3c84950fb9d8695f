"""A notice on standard error while a command waits for its group.

On a terminal, the notice is one line that is overwritten, and erased at the end; it hides a
progress bar. Elsewhere, it is one line for each time that the group cannot be used, and further
ones when the reason changes, at growing distances.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from typing import Final

from tqdm import tqdm

from dledger_client.commands import progress
from dledger_client.commands.status_line import LINE

AFTER_S: Final = 1.0
"""How long a request may wait before the notice appears."""
POLL_S: Final = 0.25
AGAIN_GROWTH: Final = 2.0
"""How much longer than at its last line a request has waited when a further one may be written."""


@contextlib.asynccontextmanager
async def shown(
    group: str, deadline_s: float, trouble: Callable[[], str | None]
) -> AsyncIterator[None]:
    """Show what a command waits for, as long as `trouble` returns it, until the block ends."""
    task = asyncio.create_task(_Notice(group, deadline_s, trouble).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Notice:
    def __init__(self, group: str, deadline_s: float, trouble: Callable[[], str | None]) -> None:
        self._group = group
        self._deadline_s = deadline_s
        self._trouble = trouble
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
            _erase()

    def _look(self, now_s: float) -> None:
        trouble = self._trouble()
        if trouble is None:
            self._since_s, self._said, self._said_s = None, "", 0.0
            _erase()
            return
        if self._since_s is None:
            self._since_s = now_s - POLL_S
        waited_s = now_s - self._since_s
        if waited_s < AFTER_S:
            return
        times = f"{waited_s:.0f} s of {self._deadline_s:g} s"
        text = f"dledger: waiting for group {self._group}, {times}: {trouble}"
        if LINE.can_be_shown:
            LINE.show(text, f"waiting, {times}: {trouble}")
        elif trouble != self._said and waited_s >= AGAIN_GROWTH * self._said_s:
            self._said, self._said_s = trouble, waited_s
            with tqdm.external_write_mode(file=sys.stderr), contextlib.suppress(OSError):
                sys.stderr.write(text + "\n")
                sys.stderr.flush()


def _erase() -> None:
    """Erase the notice, and show the bars that it has covered."""
    if LINE.erase():
        for bar in progress.shown_bars():
            bar.refresh()
