"""Shared parts of the commands: exit codes, group options and output."""

import argparse
import enum
import json
import os
import stat
import sys
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import AddressError
from dledger_client.read.indexes import check_index

SERVERS_VARIABLE: Final = "DLEDGER_CLIENT_SERVERS"
GROUP_VARIABLE: Final = "DLEDGER_CLIENT_GROUP"
HTTP_VARIABLE: Final = "DLEDGER_CLIENT_HTTP"


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the error and a pointer to the help, and exit."""
        self.exit(ExitCode.USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[Any]
else:
    Commands: TypeAlias = Any


class ExitCode(enum.IntEnum):
    """Exit codes of `dledger`; if several apply, the first in this list is used."""

    UNKNOWN = 3
    """The outcome of at least one append is unknown: it may or may not be in the log."""
    UNREACHABLE = 5
    """No member, or no leader, answered in time."""
    REFUSED = 4
    """The group refused at least one request, which had no effect."""
    FAILED = 1
    """The command failed on this machine, not in the group."""
    USAGE = 2
    OK = 0


class UsageError(Exception):
    """The arguments or the input are invalid."""


def add_group_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select a group and control the requests to it."""
    parser.add_argument(
        "--servers",
        metavar="HOST:PORT,…",
        default=os.environ.get(SERVERS_VARIABLE),
        help="addresses of one or more members, as ID=HOST:PORT for Java servers "
        f"(default: ${SERVERS_VARIABLE})",
    )
    parser.add_argument(
        "--group",
        metavar="NAME",
        default=os.environ.get(GROUP_VARIABLE),
        help=f"name of the group (default: ${GROUP_VARIABLE})",
    )
    parser.add_argument(
        "--deadline",
        metavar="SECONDS",
        type=positive_number,
        default=Timing().deadline_s,
        help="timeout of one operation, including all attempts (default: %(default)s)",
    )
    parser.add_argument(
        "--no-follow",
        action="store_true",
        help="send requests only to --servers; fail if the server is not the leader",
    )


def new_parser(
    commands: Commands,
    name: str,
    *,
    summary: str,
    description: str,
    examples: Mapping[str, str],
    exit_codes: str,
) -> argparse.ArgumentParser:
    """Add a command whose help ends with examples and exit codes.

    `examples` maps command lines to their descriptions.
    """
    width = max(map(len, examples))
    lines = [f"  {example:{width}}  {meaning}" for example, meaning in examples.items()]
    epilog = "\n".join(["examples:", *lines, "", *textwrap.wrap(f"Exit codes: {exit_codes}")])
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=textwrap.fill(description),
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def add_output_option(
    parser: argparse.ArgumentParser, description: str, human_format: str = "text"
) -> None:
    """Add `-o`: a human-readable format, or lines of JSON."""
    parser.add_argument(
        "-o",
        "--output",
        choices=[human_format, "json"],
        default=human_format,
        help=f"{description} (default: %(default)s)",
    )


def open_client(
    arguments: argparse.Namespace, *, at_least_once: bool = False, idempotent: bool = False
) -> DLedgerClient:
    """Create the client for the group options.

    Raises UsageError if the options do not select a group.
    """
    if not arguments.servers or not arguments.group:
        raise UsageError(
            f"no group given: use --servers and --group, or set {SERVERS_VARIABLE} and "
            f"{GROUP_VARIABLE}"
        )
    try:
        return DLedgerClient(
            [arguments.servers],
            arguments.group,
            follow_leader=not arguments.no_follow,
            at_least_once=at_least_once,
            idempotent=idempotent,
            timing=Timing(deadline_s=arguments.deadline),
        )
    except AddressError as error:
        raise UsageError(str(error)) from error


def positive_number(text: str) -> float:
    """Parse a number above 0, for argparse."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


def index(text: str) -> int:
    """Parse the index of an entry, for argparse."""
    number = int(text)
    check_index(number, "index")
    return number


def positive_int(text: str) -> int:
    """Parse an integer above 0, for argparse."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def write_json(value: Any) -> None:
    """Write one line of JSON to standard output."""
    write_line(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def write_event(value: Any) -> None:
    """Write one line of JSON and flush it."""
    write_json(value)
    flush()


def is_output_followed() -> bool:
    """Whether another program or a person may be waiting for each line of standard output."""
    try:
        return not stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def flush() -> None:
    """Flush standard output."""
    sys.stdout.flush()


def write_line(line: str = "") -> None:
    """Write one line to standard output."""
    sys.stdout.write(line + "\n")


def write_table(rows: list[list[str]]) -> None:
    """Write rows in aligned columns; the first row is the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        write_line("  ".join(cells).rstrip())
