"""Writes what an audit found: the summary, the report and the page.

If one output cannot be written, the others still are: they hold the results of hours of reading.
"""

import errno
import os
import stat
import sys
from pathlib import Path

from dledger_formats import console
from dledger_formats.console import OutputError


class Outputs:
    """Writes the outputs of one run, and knows whether one of them failed."""

    def __init__(self) -> None:
        self.has_failed = False

    def to_file(self, path: Path, content: bytes) -> None:
        """Write a file. If that fails, say so on standard error."""
        try:
            with open(path, "wb", opener=_open_at_once) as file:
                file.write(content)
        except OSError as error:
            self._fail(f"cannot write {path}: {error.strerror or error}")

    def to_standard_output(self, text: str) -> None:
        """Write to standard output. If its reader has gone, say nothing."""
        try:
            console.write(text)
            console.flush()
        except OutputError as error:
            console.discard_output()
            self._fail(str(error))

    def _fail(self, why: str) -> None:
        self.has_failed = True
        sys.stderr.write(f"dledger-audit: {why}\n")


def _open_at_once(path: str, flags: int) -> int:
    """Open a file to be written. Raises OSError, also for a named pipe that nobody reads.

    A named pipe waits for its reader otherwise, which may never come, and no other output is
    written then.
    """
    try:
        file = os.open(path, flags | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO and stat.S_ISFIFO(os.stat(path).st_mode):
            trouble = "no process has opened this named pipe for reading"
            raise OSError(errno.ENXIO, trouble) from error
        raise
    os.set_blocking(file, True)  # its reader may pause
    return file
