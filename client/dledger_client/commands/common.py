"""What the commands share: exit codes, the options that name a group, and output."""

import argparse
import enum
import json
import os
import sys
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import AddressError

SERVERS_VARIABLE: Final = "DLEDGER_CLIENT_SERVERS"
GROUP_VARIABLE: Final = "DLEDGER_CLIENT_GROUP"
HTTP_VARIABLE: Final = "DLEDGER_CLIENT_HTTP"


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is; ends the program."""
        self.exit(ExitCode.USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[Any]
else:
    Commands: TypeAlias = Any


class ExitCode(enum.IntEnum):
    """What `dledger` says to the shell; where several hold, the first in this list."""

    UNKNOWN = 3
    """The outcome of some append is not known: it may or may not be in the log."""
    UNREACHABLE = 5
    """No member, or no leader, answered in time."""
    REFUSED = 4
    """The group refused some request, which had no effect."""
    FAILED = 1
    """Something else went wrong, here and not in the group."""
    USAGE = 2
    OK = 0


class UsageError(Exception):
    """The command line, or the input, asks for something that cannot be done."""


def add_group_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a group and how to speak to it."""
    parser.add_argument(
        "--servers",
        metavar="HOST:PORT,…",
        default=os.environ.get(SERVERS_VARIABLE),
        help=f"where to begin, ID=HOST:PORT for Java's servers (default: ${SERVERS_VARIABLE})",
    )
    parser.add_argument(
        "--group",
        metavar="NAME",
        default=os.environ.get(GROUP_VARIABLE),
        help=f"the group's name (default: ${GROUP_VARIABLE})",
    )
    parser.add_argument(
        "--deadline",
        metavar="SECONDS",
        type=positive_number,
        default=Timing().deadline_s,
        help="give up an operation after this time, all attempts included (default: %(default)s)",
    )
    parser.add_argument(
        "--no-follow",
        action="store_true",
        help="ask only these servers, and fail where they do not lead",
    )


def new_parser(
    commands: Commands,
    name: str,
    *,
    what: str,
    description: str,
    examples: Mapping[str, str],
    exit_codes: str,
) -> argparse.ArgumentParser:
    """Add a command; its help ends with examples, a line each, and its exit codes."""
    width = max(map(len, examples))
    lines = [f"  {example:{width}}  {meaning}" for example, meaning in examples.items()]
    epilog = "\n".join(["examples:", *lines, "", *textwrap.wrap(f"Exit codes: {exit_codes}")])
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=what,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def add_output_option(parser: argparse.ArgumentParser, what: str, human: str = "text") -> None:
    """Add `-o`: a form for people, or lines of JSON for programs."""
    parser.add_argument("-o", "--output", choices=[human, "json"], default=human, help=what)


def open_client(
    arguments: argparse.Namespace, *, at_least_once: bool = False, idempotent: bool = False
) -> DLedgerClient:
    """Make the client that the options describe; UsageError when they do not name a group."""
    if not arguments.servers or not arguments.group:
        raise UsageError(
            f"name the group: --servers and --group, or {SERVERS_VARIABLE} and {GROUP_VARIABLE}"
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
    """Read a number above 0, for argparse."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


def index(text: str) -> int:
    """Read a whole number from 0 on, for argparse."""
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def positive_int(text: str) -> int:
    """Read a whole number above 0, for argparse."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def write_json(value: Any) -> None:
    """Write one line of JSON to the standard output."""
    write_line(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def write_event(value: Any) -> None:
    """Write one line of JSON that is not to wait for more."""
    write_json(value)
    flush()


def flush() -> None:
    """Hand out what was written so far."""
    sys.stdout.flush()


def write_line(line: str = "") -> None:
    """Write one line to the standard output."""
    sys.stdout.write(line + "\n")


def write_table(rows: list[list[str]]) -> None:
    """Write rows, the first being the header, with columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        write_line("  ".join(cells).rstrip())
