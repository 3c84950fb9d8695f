"""The bodies of `dledger append`: texts from arguments, lines, or whole files."""

import argparse
import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Final

from dledger_client.commands import notice
from dledger_client.commands.exits import UsageError
from dledger_client.commands.lines import (
    LineTooLongError,
    UnendedLineError,
    read_chunks,
    read_lines,
)
from dledger_client.opening import open_file
from dledger_formats.log import disk

STANDARD_INPUT: Final = "-"


class InputError(Exception):
    """The input could not be read to its end; the message says where reading failed.

    The bodies before the error have been appended.
    """


class OpenInputError(InputError):
    """The input ends within a line, which may still be written; all lines before it were read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the bodies."""
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        help="file to read; - is standard input (default: standard input)",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--body",
        metavar="TEXT",
        action="append",
        help="append TEXT instead of reading files; may be repeated (default: none)",
    )
    source.add_argument(
        "--whole", action="store_true", help="append each FILE as one entry (default: each line)"
    )


def from_arguments(arguments: argparse.Namespace) -> AsyncIterator[bytes]:
    """Return the bodies that the options select.

    Raises UsageError if the options contradict each other or a file is not readable. The iterator
    raises InputError if reading a file fails later, or a line or file is too large for an entry.
    """
    files: list[str] = arguments.files
    if arguments.body is not None:
        if files:
            raise UsageError(f"--body cannot be combined with a FILE: {files[0]}")
        return _texts(arguments.body)
    if arguments.whole and not files:
        raise UsageError("--whole requires a FILE")
    for file in files or [STANDARD_INPUT]:
        if problem := _problem(file):
            raise UsageError(f"cannot read {file}: {problem}; nothing was appended")
    if arguments.whole:
        return _whole_files(files)
    return _lines(files or [STANDARD_INPUT], must_end=arguments.producer is not None)


def total_bytes(arguments: argparse.Namespace) -> int | None:
    """Return the number of bytes of the input with its newlines; None if it is not known yet."""
    if arguments.body is not None:
        return sum(len(os.fsencode(text)) + 1 for text in arguments.body)
    if not arguments.files:
        return None
    try:
        found = [os.stat(file) for file in arguments.files if file != STANDARD_INPUT]
    except OSError:
        return None
    is_known = len(found) == len(arguments.files)
    return sum(one.st_size for one in found) if is_known and _all_regular(found) else None


def _all_regular(found: list[os.stat_result]) -> bool:
    return all(stat.S_ISREG(one.st_mode) for one in found)


def is_terminal(arguments: argparse.Namespace) -> bool:
    """Return whether the bodies are read from a terminal."""
    is_read = arguments.body is None and (not arguments.files or STANDARD_INPUT in arguments.files)
    return is_read and sys.stdin is not None and sys.stdin.isatty()


def noun(arguments: argparse.Namespace) -> str:
    """Return the noun for a body in messages, which count from 1 over the whole input."""
    if arguments.body is not None:
        return "--body"
    return "file" if arguments.whole else "line"


def _problem(file: str) -> str:
    """Return why a file cannot be read; empty if it can be opened."""
    if file == STANDARD_INPUT:
        return "standard input is closed" if sys.stdin is None else ""
    try:
        # A named pipe must not wait here for its writer, nor be opened twice.
        if stat.S_ISFIFO(os.stat(file).st_mode):
            return "" if os.access(file, os.R_OK) else "Permission denied"
        with Path(file).open("rb") as opened:
            opened.read(0)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _shown(file: str) -> str:
    return "standard input" if file == STANDARD_INPUT else file


async def _texts(texts: list[str]) -> AsyncGenerator[bytes, None]:
    for text in texts:
        yield os.fsencode(text)  # the exact bytes of the argument, even if it is not valid text


async def _whole_files(files: list[str]) -> AsyncGenerator[bytes, None]:
    for file in files:
        try:
            body = await _read_whole(file)
        except OSError as error:
            raise InputError(f"cannot read {_shown(file)}: {error.strerror}") from error
        if len(body) > disk.BODY_SIZE_MAX:
            raise InputError(
                f"{_shown(file)} exceeds the maximum entry size, {disk.BODY_SIZE_MAX} bytes"
            )
        yield body


async def _read_whole(file: str) -> bytes:
    """Read a whole file, or stop once it exceeds the maximum entry size."""
    if file != STANDARD_INPUT and stat.S_ISREG(os.stat(file).st_mode):
        return await asyncio.to_thread(_read_regular, file)
    body = bytearray()
    descriptor = await _open(file)
    try:
        async with contextlib.aclosing(read_chunks(descriptor)) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > disk.BODY_SIZE_MAX:
                    break
    finally:
        os.close(descriptor)
    return bytes(body)


def _read_regular(file: str) -> bytes:
    with Path(file).open("rb") as stream:
        return stream.read(disk.BODY_SIZE_MAX + 1)


async def _open(file: str) -> int:
    """Return a descriptor of the file, which the caller closes."""
    if file == STANDARD_INPUT:
        return os.dup(sys.stdin.fileno())
    async with notice.opening(file, notice.WRITING):
        return await open_file(file, os.O_RDONLY)


async def _lines(files: list[str], *, must_end: bool) -> AsyncGenerator[bytes, None]:
    for file in files:
        try:
            descriptor = await _open(file)
            try:
                async for line in read_lines(descriptor, disk.BODY_SIZE_MAX, must_end=must_end):
                    yield line
            finally:
                os.close(descriptor)
        except UnendedLineError as error:
            raise OpenInputError(
                f"{_shown(file)}: {error} has no newline at its end, and was not appended: a "
                "producer could not go on if the line were longer next time. End the line, and run "
                "the command again"
            ) from error
        except LineTooLongError as error:
            raise InputError(f"{_shown(file)}: {error}") from error
        except OSError as error:
            raise InputError(f"cannot read {_shown(file)}: {error.strerror}") from error
