"""Shared parts of the commands: exit codes, group options and output."""

import argparse
import contextlib
import enum
import json
import os
import shutil
import stat
import sys
import textwrap
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from dledger_client.calls.member_reads import ReadFrom
from dledger_client.client import IN_FLIGHT_MAX, DLedgerClient
from dledger_client.cluster.addresses import PORT_MAX, parse_servers
from dledger_client.cluster.arguments import SECONDS_MAX
from dledger_client.cluster.members import Timing
from dledger_client.commands import notice, profiles, streams
from dledger_client.commands.profiles import GROUP_VARIABLE, SERVERS_VARIABLE
from dledger_client.commands.status_line import LINE
from dledger_client.errors import AddressError
from dledger_client.read.indexes import INDEX_MAX
from dledger_formats import console
from dledger_formats.protocol.requests import Consistency

HELP_COLUMNS: Final = 70
"""The width of texts in the help, unless the terminal is narrower."""
HELP_COLUMNS_MIN: Final = 20
TEXT_SHOWN_MAX: Final = 40
"""Length to which a wrong value is cut in a message."""


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line, and takes options by their whole names:
    else `--form 0` would mean `--format 0`, and not what was to be `--from 0`.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **given})

    def error(self, message: str) -> NoReturn:
        """Print the error and a pointer to the help, and exit."""
        self.exit(ExitCode.USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write the help or the version; argparse would ignore an error of the output."""
        if file is sys.stdout:
            streams.write(message)
        else:
            super()._print_message(message, file)


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
        help="addresses of one or more members, as ID=HOST:PORT for Java servers "
        f"(default: those of the profile, or ${SERVERS_VARIABLE})",
    )
    parser.add_argument(
        "--group",
        metavar="NAME",
        help=f"name of the group (default: that of the profile, or ${GROUP_VARIABLE})",
    )
    profiles.add_option(parser)
    parser.add_argument(
        "--deadline",
        metavar="SECONDS",
        type=seconds,
        default=Timing().deadline_s,
        help="timeout of one operation in seconds, including all attempts (default: %(default)s)",
    )
    parser.add_argument(
        "--no-follow",
        action="store_true",
        help="send requests only to --servers; a follower passes plain appends on to its leader "
        "(default: follow the leader)",
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
    columns = max(HELP_COLUMNS_MIN, min(HELP_COLUMNS, terminal_columns() - 2))
    lines = [f"  {example:{width}}  {meaning}" for example, meaning in examples.items()]
    if max(map(len, lines)) > terminal_columns():
        lines = [f"  {example}\n    {meaning}" for example, meaning in examples.items()]
    codes = textwrap.wrap(f"Exit codes: {exit_codes}", columns)
    epilog = "\n".join(["examples:", *lines, "", *codes])
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=textwrap.fill(description, columns),
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def add_read_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which members answer reads, and what they must see."""
    parser.add_argument(
        "--read-from",
        choices=[one.value for one in ReadFrom],
        default=ReadFrom.LEADER.value,
        help="members that answer reads (default: %(default)s)",
    )
    parser.add_argument(
        "--consistency",
        choices=[one.value for one in Consistency],
        default=Consistency.LINEARIZABLE.value,
        help="stale: answer from what the member has, without asking the leader "
        "(default: %(default)s)",
    )


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


@contextlib.asynccontextmanager
async def open_client(
    arguments: argparse.Namespace,
    *,
    at_least_once: bool = False,
    idempotent: bool = False,
    admin_token: str = "",
) -> AsyncIterator[DLedgerClient]:
    """Open a client for the group options, with a notice while the group cannot be used.

    Raises UsageError if the options do not select a group.
    """
    opened = new_client(
        arguments,
        at_least_once=at_least_once,
        idempotent=idempotent,
        admin_token=admin_token,
    )
    async with opened as client:
        deadline_s: float = arguments.deadline
        async with notice.shown(client.group, deadline_s, lambda: client.trouble):
            yield client


def new_client(
    arguments: argparse.Namespace,
    *,
    at_least_once: bool = False,
    idempotent: bool = False,
    admin_token: str = "",
) -> DLedgerClient:
    """Create the client for the group options. Raises UsageError if they do not select a group."""
    if not arguments.servers or not arguments.group:
        raise UsageError(
            f"no group given: use --servers and --group, set {SERVERS_VARIABLE} and "
            f"{GROUP_VARIABLE}, or name a --profile that has both"
        )
    try:
        return DLedgerClient(
            [arguments.servers],
            arguments.group,
            follow_leader=not arguments.no_follow,
            at_least_once=at_least_once,
            idempotent=idempotent,
            read_from=getattr(arguments, "read_from", ReadFrom.LEADER.value),
            consistency=getattr(arguments, "consistency", Consistency.LINEARIZABLE.value),
            timing=Timing(deadline_s=arguments.deadline),
            admin_token=admin_token,
        )
    except ValueError as error:  # AddressError is one
        raise UsageError(str(error)) from error


def seconds(text: str) -> float:
    """Parse a time above 0, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(
            f"{text[:TEXT_SHOWN_MAX]!a} is invalid; expected a number of seconds, above 0 and at "
            f"most {SECONDS_MAX}"
        )
    return number


def addresses(text: str) -> str:
    """Check addresses, for argparse. An empty text stands for none."""
    try:
        if text:
            parse_servers(text)
    except AddressError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def index(text: str) -> int:
    """Parse the index of an entry, for argparse."""
    return whole_number(text, 0, INDEX_MAX)


def positive_int(text: str) -> int:
    """Parse an integer above 0, for argparse."""
    return whole_number(text, 1, INDEX_MAX)


def in_flight(text: str) -> int:
    """Parse a number of appends in flight, for argparse."""
    return whole_number(text, 1, IN_FLIGHT_MAX)


def port(text: str) -> int:
    """Parse a port, for argparse."""
    return whole_number(text, 1, PORT_MAX)


def whole_number(text: str, smallest: int, largest: int) -> int:
    """Parse a whole number of a range, for argparse."""
    try:
        number = int(text)
    except ValueError:
        number = smallest - 1
    if not smallest <= number <= largest:
        if largest == INDEX_MAX and number <= INDEX_MAX:
            allowed = f"{smallest} or more"
        else:
            allowed = f"{smallest} to {largest}"
        raise argparse.ArgumentTypeError(
            f"{text[:TEXT_SHOWN_MAX]!a} is invalid; expected a whole number, {allowed}"
        )
    return number


def entries(count: int) -> str:
    """Return a number of entries as text."""
    return f"{count} entry" if count == 1 else f"{count} entries"


def terminal_columns() -> int:
    """Return the width of the terminal; 80 if there is none."""
    return shutil.get_terminal_size().columns


def write_json(value: Any) -> None:
    """Write one line of JSON to standard output."""
    ascii_only = not streams.is_utf8()
    write_line(json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")))


def write_event(value: Any) -> None:
    """Write one line of JSON and flush it."""
    write_json(value)
    console.flush()


def is_output_followed() -> bool:
    """Whether another program or a person may be waiting for each line of standard output."""
    try:
        return not stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def write_line(line: str = "") -> None:
    """Write one line to standard output."""
    streams.write(line + "\n")


def complain(line: str) -> None:
    """Write one line about the command itself to standard error."""
    LINE.erase()
    with contextlib.suppress(OSError):
        sys.stderr.write(line + "\n")


def write_table(rows: list[list[str]]) -> None:
    """Write rows in aligned columns; the first row is the header.

    On a terminal that is too narrow for them, each row becomes a block of lines, TITLE and value.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if sys.stdout.isatty() and sum(widths) + 2 * (len(widths) - 1) > terminal_columns():
        title_width = max(map(len, rows[0]))
        for row in rows[1:]:
            for title, cell in zip(rows[0], row, strict=True):
                write_line(f"{title:{title_width}}  {cell}")
            write_line()
        return
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        write_line("  ".join(cells).rstrip())
