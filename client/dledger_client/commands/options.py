"""The options that several commands share, and how their values are parsed."""

import argparse
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dledger_client.calls.member_reads import ReadFrom
from dledger_client.client import IN_FLIGHT_MAX
from dledger_client.cluster.addresses import PORT_MAX, parse_servers
from dledger_client.cluster.arguments import SECONDS_MAX
from dledger_client.cluster.members import Timing
from dledger_client.commands import profiles, streams
from dledger_client.commands.printing import terminal_columns
from dledger_client.commands.profiles import GROUP_VARIABLE, SERVERS_VARIABLE
from dledger_client.errors import AddressError
from dledger_client.read.indexes import INDEX_MAX
from dledger_formats import command_lines
from dledger_formats.digits import plain_int
from dledger_formats.protocol.requests import Consistency

HELP_COLUMNS: Final = 70
"""The width of texts in the help, unless the terminal is narrower."""
HELP_COLUMNS_MIN: Final = 20
TEXT_SHOWN_MAX: Final = 40
"""Length to which a wrong value is cut in a message."""
_TIME: Final = re.compile(r"[0-9.][0-9.eE+-]*")


class Parser(command_lines.Parser):
    """A parser whose help goes the way of all output."""

    @property
    def own_options(self) -> list[str]:
        """The options that this parser knows itself, without those of its commands."""
        return [option for action in self._actions for option in action.option_strings]

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


def add_group_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select a group and control the requests to it."""
    parser.add_argument(
        "--servers",
        metavar="HOST:PORT,...",
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
    columns = max(HELP_COLUMNS_MIN, min(HELP_COLUMNS, terminal_columns() - 2))
    codes = command_lines.wrapped(f"Exit codes: {exit_codes}", columns)
    epilog = "\n".join(["examples:", *_example_lines(examples, terminal_columns()), "", *codes])
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description="\n".join(command_lines.wrapped(description, columns)),
        epilog=epilog,
        formatter_class=command_lines.RawHelpFormatter,
    )
    return parser


def _example_lines(examples: Mapping[str, str], columns: int) -> list[str]:
    """Return the examples with their meanings beside them or, if they do not fit, below."""
    width = max(map(len, examples))
    lines = [f"  {example:{width}}  {meaning}" for example, meaning in examples.items()]
    if max(map(len, lines)) <= columns:
        return lines
    lines = []
    for example, meaning in examples.items():
        # The shell joins lines that end with a backslash, unless a quoted text is divided.
        parts = (
            [example]
            if {"'", '"'} & set(example)
            else command_lines.wrapped(example, columns - 4, " " * 4)
        )
        lines += [f"  {part} \\" for part in parts[:-1]] + [f"  {parts[-1]}"]
        lines += [f"    {line}" for line in command_lines.wrapped(meaning, columns - 4)]
    return lines


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


def seconds(text: str, most: int = SECONDS_MAX) -> float:
    """Parse a time above 0, for argparse."""
    try:
        number = float(text) if _TIME.fullmatch(text) else 0.0
    except ValueError:
        number = 0.0
    if not 0 < number <= most:
        raise argparse.ArgumentTypeError(
            f"{text[:TEXT_SHOWN_MAX]!a} is invalid; expected a number of seconds, above 0 and at "
            f"most {most}"
        )
    return number


def addresses(text: str) -> str:
    """Check addresses, for argparse. An empty text means none."""
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
    """Parse a whole number in a range, for argparse."""
    try:
        number = plain_int(text)
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
