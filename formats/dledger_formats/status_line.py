"""The line on a terminal that says what a command waits for, and is overwritten and erased."""

import os
import shutil
import sys
from typing import Final, TextIO

_ELLIPSIS: Final = "..."


def can_be_overwritten(stream: TextIO) -> bool:
    """Return whether a stream is a terminal on which text can be overwritten."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class StatusLine:
    """The last line of the terminal, if standard error is one."""

    def __init__(self) -> None:
        self._width = 0
        """How many columns must be erased; 0 while nothing is shown."""

    @property
    def can_be_shown(self) -> bool:
        """Whether standard error is a terminal on which a line can be overwritten."""
        return can_be_overwritten(sys.stderr)

    def show(self, text: str, short_text: str) -> None:
        """Replace the line by `text`, or by `short_text` if `text` does not fit."""
        width = max(1, shutil.get_terminal_size().columns - 1)
        if len(text) > width:
            text = short_text
        if len(text) > width:
            text = text[: max(0, width - len(_ELLIPSIS))] + _ELLIPSIS[:width]
        self._width = width
        _write("\r" + text.ljust(width))

    def erase(self) -> bool:
        """Erase the line before anything else is written; return whether there was one."""
        if not self._width:
            return False
        _write("\r" + " " * self._width + "\r")
        self._width = 0
        return True


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        return


LINE: Final = StatusLine()
"""The only instance: a process has one terminal, which commands and output share."""
