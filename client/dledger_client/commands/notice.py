"""A notice on standard error while a command waits for its group.

On a terminal, it is one line that is overwritten and erased in the end. Elsewhere, it is one line
for each time that the group cannot be used.
"""

import asyncio
import os
import shutil
import sys
from typing import Final

from tqdm import tqdm

from dledger_client.client import DLedgerClient

AFTER_S: Final = 1.0
"""How long a request may wait before the notice appears."""
POLL_S: Final = 0.25


class Notice:
    """Says what a client is trying, as long as it is in trouble."""

    def __init__(self, client: DLedgerClient) -> None:
        self._client = client
        self._since_s: float | None = None
        self._is_said = False
        self._width = 0
        """Length of the line that is on the terminal and will be overwritten."""

    async def run(self) -> None:
        """Look at the client several times a second until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(POLL_S)
                self._look(loop.time())
        finally:
            self._erase()

    def _look(self, now_s: float) -> None:
        trouble = self._client.trouble
        if trouble is None:
            self._since_s, self._is_said = None, False
            self._erase()
            return
        if self._since_s is None:
            self._since_s = now_s - POLL_S
        waited_s = now_s - self._since_s
        if waited_s < AFTER_S:
            return
        text = (
            f"dledger: waiting for group {self._client.group}, {waited_s:.0f} s of "
            f"{self._client.timing.deadline_s:g} s: {trouble}"
        )
        bars = getattr(tqdm, "_instances", ())
        if _is_terminal() and not bars:
            self._overwrite(text)
        elif not self._is_said:
            self._is_said = True
            with tqdm.external_write_mode(file=sys.stderr):
                _write(text + "\n")

    def _overwrite(self, text: str) -> None:
        shown = text[: max(1, shutil.get_terminal_size().columns - 1)]
        _write("\r" + shown.ljust(self._width))
        self._width = len(shown)

    def _erase(self) -> None:
        if self._width:
            _write("\r" + " " * self._width + "\r")
            self._width = 0


def _is_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        return
