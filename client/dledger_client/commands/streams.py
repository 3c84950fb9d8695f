"""Standard input, output and error: closed ones, full ones, and ones whose reader has gone."""

import os
import sys
from contextlib import suppress
from typing import Final

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


def discard_output() -> None:
    """Send what was not written yet, and all further output, nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_utf8() -> bool:
    """Whether standard output can express every character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
