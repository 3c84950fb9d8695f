"""The group's administration token, for the commands that change a group.

A token is never an argument, which every user of the machine can see. The sources, in this order:
the option, the profile (without `--servers`), two variables of the command line, and the variable
of a member, so that the commands work in a member's container.
"""

import argparse
import contextlib
import os
from typing import Final

from dledger_client.commands import notice
from dledger_client.commands.exits import UsageError
from dledger_client.commands.lines import read_chunks
from dledger_client.opening import open_file
from dledger_formats.admin_tokens import FILE_BYTES_MAX, AdminTokens, TokensError
from dledger_formats.settings import variable_name

FILE_VARIABLE: Final = "DLEDGER_CLIENT_ADMIN_TOKEN_FILE"
VARIABLE: Final = "DLEDGER_CLIENT_ADMIN_TOKEN"
MEMBER_FILE_VARIABLE: Final = variable_name("admin_token_file")


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--admin-token-file`."""
    parser.add_argument(
        "--admin-token-file",
        metavar="FILE",
        help="file with the administration token, for a group that demands it (default: "
        f"that of the profile unless --servers is given, ${FILE_VARIABLE}, the token in "
        f"${VARIABLE}, or ${MEMBER_FILE_VARIABLE})",
    )


async def read(arguments: argparse.Namespace) -> str:
    """Return the token to send; empty if none is given. Raises UsageError."""
    tokens = await read_all(arguments)
    return tokens.current if tokens else ""


async def read_all(arguments: argparse.Namespace) -> AdminTokens | None:
    """Return the tokens of the first source; None if none is given. Raises UsageError."""
    path = arguments.admin_token_file or os.environ.get(FILE_VARIABLE)
    if path:
        return await _read_file(path)
    if token := os.environ.get(VARIABLE):
        return _parse(token.encode("utf-8", "surrogateescape"), f"${VARIABLE}")
    if path := os.environ.get(MEMBER_FILE_VARIABLE):
        return await _read_file(path)
    return None


async def _read_file(path: str) -> AdminTokens:
    try:
        raw = await _content(path)
    except OSError as error:
        raise UsageError(
            f"cannot read the administration token in {path}: {error.strerror}"
        ) from error
    except ValueError as error:  # a NUL in the path
        raise UsageError(f"cannot read the administration token in {path!a}: {error}") from error
    return _parse(raw, path)


async def _content(path: str) -> bytes:
    """Return what a file holds, up to one byte more than it may have. Raises as `open_file` does.

    A named pipe must not block the event loop, which could not be interrupted then.
    """
    async with notice.opening(path, notice.WRITING):
        file = await open_file(path, os.O_RDONLY)
    content = bytearray()
    try:
        async with contextlib.aclosing(read_chunks(file)) as chunks:
            async for chunk in chunks:
                content += chunk
                if len(content) > FILE_BYTES_MAX:
                    break
    finally:
        os.close(file)
    return bytes(content[: FILE_BYTES_MAX + 1])


def _parse(raw: bytes, where: str) -> AdminTokens:
    try:
        return AdminTokens.parse(raw)
    except TokensError as error:
        raise UsageError(f"{where} holds no administration token: {error}") from error
