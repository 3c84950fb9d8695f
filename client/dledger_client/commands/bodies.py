"""The bodies of `dledger append`: texts from arguments, lines, or whole files."""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Final

from dledger_client.commands.common import UsageError
from dledger_client.commands.lines import LineTooLongError, read_lines
from dledger_formats.log import disk

STANDARD_INPUT: Final = "-"


class InputError(Exception):
    """The input could not be read to its end; the message says where reading failed.

    The bodies before the error have been appended.
    """


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
        help="append TEXT instead of reading files; may be repeated",
    )
    source.add_argument(
        "--whole", action="store_true", help="append each FILE as one entry instead of its lines"
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
    for file in files:
        if file != STANDARD_INPUT and not os.access(file, os.R_OK):
            raise UsageError(f"cannot read {file}; nothing was appended")
    return _whole_files(files) if arguments.whole else _lines(files or [STANDARD_INPUT])


async def _texts(texts: list[str]) -> AsyncGenerator[bytes, None]:
    for text in texts:
        yield os.fsencode(text)  # the exact bytes of the argument, even if it is not valid text


async def _whole_files(files: list[str]) -> AsyncGenerator[bytes, None]:
    for file in files:
        try:
            body = await asyncio.to_thread(_read_whole, file)
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}") from error
        if len(body) > disk.BODY_SIZE_MAX:
            raise InputError(f"{file} exceeds the maximum entry size, {disk.BODY_SIZE_MAX} bytes")
        yield body


def _read_whole(file: str) -> bytes:
    """Read at most one byte more than an entry can contain."""
    if file == STANDARD_INPUT:
        return sys.stdin.buffer.read(disk.BODY_SIZE_MAX + 1)
    with Path(file).open("rb") as stream:
        return stream.read(disk.BODY_SIZE_MAX + 1)


async def _lines(files: list[str]) -> AsyncGenerator[bytes, None]:
    for file in files:
        try:
            descriptor = (
                os.dup(sys.stdin.fileno()) if file == STANDARD_INPUT else os.open(file, os.O_RDONLY)
            )
            try:
                async for line in read_lines(descriptor, disk.BODY_SIZE_MAX):
                    yield line
            finally:
                os.close(descriptor)
        except LineTooLongError as error:
            raise InputError(f"{file}: {error}") from error
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}") from error
