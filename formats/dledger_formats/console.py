"""The standard streams of a program: closed ones, full ones, and ones whose reader has gone."""

import codecs
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from dledger_formats import interrupts

_STANDARD: Final = (0, 1, 2)
_OUTPUT: Final = 1
_ERROR: Final = 2
_ESCAPED: Final = "dledger-escaped"
_BYTE: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\udc([89a-f][0-9a-f])")


class OutputError(Exception):
    """Standard output cannot be written, for a reason other than that its reader has gone."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write to standard output: {error.strerror or error}")


class ReaderGoneError(BrokenPipeError):
    """The reader of standard output, such as `head`, has gone. Other pipes raise its base class."""


class _Reader:
    has_gone = False


_READER: Final = _Reader()


def run(program: str, work: Callable[[], int], *, failed: int) -> int:
    """Do the work of a program, and return its exit code.

    The exit code is `failed` if the work succeeds and standard output cannot be written. A line on
    standard error says so. If the reader of the output has gone, the exit code is that of the work.
    If Ctrl-C ended the work, nothing is printed. The work calls
    `interrupts.raise_keyboard_interrupt` when it has imported what it needs.
    """
    prepare()
    try:
        code = work()
    except SystemExit as ended:  # after the help, or for a wrong option
        code = int(ended.code or 0)
    except KeyboardInterrupt:
        code = interrupts.EXIT_INTERRUPTED
    except OutputError as error:
        return _report(program, error, failed)
    finally:
        interrupts.end_the_process()
    try:
        flush()
    except OutputError as error:
        return _report(program, error, code or failed)
    return code


def prepare(*, needs_output: bool = False) -> None:
    """Make the standard streams safe to use.

    A closed one becomes /dev/null, because its number would otherwise be given to a file. With
    `needs_output`, writing to a standard output that was closed fails nevertheless. Text that the
    locale cannot express is escaped, also bytes of names that are no UTF-8 (`readable`).
    `sys.stdin` stays None if standard input is closed. Text that standard error does not accept is
    lost, because there is no other place to report it.
    """
    for number in _STANDARD:
        try:
            os.fstat(number)
        except OSError:
            flags = os.O_RDONLY if needs_output and number == _OUTPUT else os.O_RDWR
            os.open(os.devnull, flags)  # gets the lowest number that is free: this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - it is open until the end
    if sys.stderr is sys.__stderr__:  # tests replace it
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(_ErrorFile(_ERROR, "w", closefd=False)),
            encoding=None if sys.stderr is None else sys.stderr.encoding,
            line_buffering=True,
        )
    codecs.register_error(_ESCAPED, _escaped)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # tests replace the streams by simpler ones
            stream.reconfigure(errors=_ESCAPED)  # type: ignore[union-attr]


def readable(message: str) -> str:
    """Write each byte of a message that is no UTF-8 as \\xff, where `repr` wrote \\udcff.

    Python represents such a byte of a name or an argument as half of a surrogate pair.
    """
    return _BYTE.sub(r"\1\\x\2", message)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Escape what a stream cannot express; Python calls this for `_ESCAPED`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    part = error.object[error.start : error.end]
    return readable(part.encode("ascii", "backslashreplace").decode()), error.end


class _ErrorFile(io.FileIO):
    """Standard error, which drops what a full device or a reader that has gone does not accept.

    An error would replace the exit code, by which callers know what happened. That includes an
    error at the end of the process, when Python flushes what an earlier one left in the buffer.
    """

    def write(self, content: Any) -> int:
        """Write, and report everything as written if the write fails."""
        try:
            return super().write(content) or len(content)
        except OSError:
            return len(content)


def write(text: str) -> None:
    """Write text to standard output. Raises OutputError.

    What nobody reads is dropped: the program does its work, and its exit code tells the outcome.
    Work that only writes asks `is_unread` now and then, and ends early.
    """
    with _dropped_if_unread():
        sys.stdout.write(text)


def write_bytes(content: bytes) -> None:
    """Write bytes to standard output, likewise. Do not mix this with text."""
    with _dropped_if_unread():
        sys.stdout.buffer.write(content)


def flush() -> None:
    """Flush standard output. Raises OutputError."""
    with _dropped_if_unread():
        sys.stdout.flush()


def is_unread() -> bool:
    """Return whether the reader of standard output was gone when something was written or flushed.

    A pipe tells nothing before that, and without a buffer every write counts.
    """
    return _READER.has_gone


@contextmanager
def _dropped_if_unread() -> Iterator[None]:
    try:
        with raised_as_output_error():
            yield
    except ReaderGoneError:
        _READER.has_gone = True
        discard_output()


@contextmanager
def raised_as_output_error() -> Iterator[None]:
    """Turn errors of standard output into ReaderGoneError or OutputError."""
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGoneError(*error.args) from error
    except OSError as error:
        raise OutputError(error) from error


def discard_output() -> None:
    """Discard what was not written yet, and all further output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(program: str, error: OutputError, code: int) -> int:
    discard_output()
    sys.stderr.write(f"{program}: {error}\n")
    return code
