"""`dledger get`: read entries by their index."""

import argparse
import base64
import contextlib
import sys
from typing import Any

from dledger_client.commands import common
from dledger_client.commands.common import ExitCode, UsageError
from dledger_formats import disk
from dledger_formats.requests import DLedgerEntry

TO_THE_END = "end"


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Say what `dledger get` takes."""
    parser = commands.add_parser(
        "get",
        help="read entries by index",
        description="Read the entries from --first to --last; only the first without --last.",
        epilog="Exit codes: 0 all were read, 2 usage, 4 there is no such entry, 5 group "
        "unreachable.",
    )
    parser.add_argument("--first", metavar="N", type=int, required=True, help="counted from 0")
    parser.add_argument("--last", metavar="M", help="an index, or `end` for the end of the log")
    common.add_group_options(parser)
    parser.add_argument(
        "--output",
        choices=["raw", "json"],
        default="raw",
        help="the bodies, each with a newline behind it, without the empty entries that leaders "
        "begin their terms with; or a line of JSON for each entry",
    )
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Read and write entries; return the exit code."""
    last = _last(arguments)
    async with common.open_client(arguments) as client:
        entries = client.get_range(arguments.first, last)
        async with contextlib.aclosing(entries):
            async for entry in entries:
                if arguments.output == "json":
                    common.write_json(_plain(entry))
                elif entry.magic == disk.NORMAL:
                    sys.stdout.buffer.write(entry.body + b"\n")
    return ExitCode.OK


def _last(arguments: argparse.Namespace) -> int | None:
    if arguments.last == TO_THE_END:
        return None
    try:
        last = arguments.first if arguments.last is None else int(arguments.last)
    except ValueError:
        raise UsageError(f"--last is {arguments.last!r}; an index or `end` is expected") from None
    if not 0 <= arguments.first <= last:
        raise UsageError(f"--first {arguments.first} --last {last} is no range of indexes")
    return last


def _plain(entry: DLedgerEntry) -> dict[str, Any]:
    """Give the body as text where it is text, so that people can read it."""
    plain: dict[str, Any] = {"index": entry.index, "term": entry.term, "pos": entry.pos}
    if entry.magic == disk.NOOP:
        return plain | {"noop": True}
    try:
        return plain | {"body": entry.body.decode()}
    except UnicodeDecodeError:
        return plain | {"bodyBase64": base64.b64encode(entry.body).decode()}
