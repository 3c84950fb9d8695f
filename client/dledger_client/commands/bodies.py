"""Where `dledger append` takes its bodies from: arguments, lines, or whole files."""

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
    """The input breaks off; what came before it has been appended. The message says where."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is appended."""
    parser.add_argument(
        "files", metavar="FILE", nargs="*", help="where the lines are; - is standard input"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--body",
        metavar="TEXT",
        action="append",
        help="append this text and read no file; may be given several times",
    )
    what.add_argument(
        "--whole", action="store_true", help="append each FILE as one entry, whatever is in it"
    )


def from_arguments(arguments: argparse.Namespace) -> AsyncIterator[bytes]:
    """Return the bodies that the options describe; UsageError when they make no sense together.

    Bodies end with InputError when a file cannot be read after all, or holds too much.
    """
    files: list[str] = arguments.files
    if arguments.body is not None:
        if files:
            raise UsageError(f"--body appends its text, and no FILE: {files[0]}")
        return _texts(arguments.body)
    if arguments.whole and not files:
        raise UsageError("--whole needs a FILE")
    for file in files:
        if file != STANDARD_INPUT and not os.access(file, os.R_OK):
            raise UsageError(f"{file} cannot be read; nothing was appended")
    return _whole_files(files) if arguments.whole else _lines(files or [STANDARD_INPUT])


async def _texts(texts: list[str]) -> AsyncGenerator[bytes, None]:
    for text in texts:
        yield os.fsencode(text)  # the bytes that the shell gave, even where they are no text


async def _whole_files(files: list[str]) -> AsyncGenerator[bytes, None]:
    for file in files:
        try:
            body = await asyncio.to_thread(_read_whole, file)
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror}") from error
        if len(body) > disk.BODY_SIZE_MAX:
            raise InputError(f"{file} is longer than an entry may be, {disk.BODY_SIZE_MAX} bytes")
        yield body


def _read_whole(file: str) -> bytes:
    """Read at most one byte more than an entry holds."""
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
            raise InputError(f"{file} cannot be read: {error.strerror}") from error
