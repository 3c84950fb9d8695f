"""`dledger`: the command line for DLedger groups.

dledger append flights.jsonl --servers orders-nodes:40911 --group orders
dledger get 0..
dledger tail
dledger status
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

import argcomplete
import uvloop

from dledger_client.commands import (
    append,
    audit_token,
    bench,
    completion,
    export,
    get,
    group,
    health,
    import_,
    member,
    printing,
    profiles,
    register,
    status,
    streams,
    tail,
    transfer,
)
from dledger_client.commands.exits import ExitCode, UsageError
from dledger_client.commands.options import Parser
from dledger_client.commands.producer_record import RecordError
from dledger_client.commands.profiles import ProfileError
from dledger_client.errors import (
    ClientError,
    GroupUnreachableError,
    OutcomeUnknownError,
    RefusedError,
)
from dledger_client.exports.records import ExportError, WrongSourceError
from dledger_client.local.errors import MemberFailedError
from dledger_formats import console
from dledger_formats.console import OutputError, ReaderGoneError

TRACE_VARIABLE: Final = "DLEDGER_CLIENT_TRACE"
EXIT_INTERRUPTED: Final = 130
_EXIT_CODES: Final = (
    (UsageError, ExitCode.USAGE),
    (ProfileError, ExitCode.USAGE),
    (WrongSourceError, ExitCode.USAGE),
    (OutputError, ExitCode.FAILED),
    (RecordError, ExitCode.FAILED),
    (ExportError, ExitCode.FAILED),
    (MemberFailedError, ExitCode.FAILED),
    (GroupUnreachableError, ExitCode.UNREACHABLE),
    (OutcomeUnknownError, ExitCode.UNKNOWN),
    (RefusedError, ExitCode.REFUSED),
    (ClientError, ExitCode.UNREACHABLE),
)
"""Exit code of each error; the first match applies."""


def parser() -> Parser:
    """Create the parser of the whole command line."""
    top = Parser(
        prog="dledger",
        description="Append to, read and manage DLedger groups.",
        epilog="`dledger group local` runs a group on this machine. Each COMMAND has examples, and "
        "its exit codes, in its own --help.",
    )
    top.add_argument(
        "--version", action="version", version=f"%(prog)s {version('dledger-operator')}"
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    for command in (
        append, get, tail, export, import_, register, group, member, status, health, transfer,
        audit_token, bench, completion,
    ):  # fmt: skip
        command.add_parser(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    streams.prepare()
    top = parser()
    argcomplete.autocomplete(top)  # has an effect only when a shell requests completions
    given = sys.argv[1:] if argv is None else list(argv)
    try:
        _check_order(top, given)
        arguments = top.parse_args(given)
        if "run" not in arguments:  # `dledger` alone
            top.print_help()
            top.exit()
    except SystemExit as ended:  # after an error, or after the help
        raise SystemExit(_finish(int(ended.code or 0))) from None
    except OutputError as error:
        return _fail(error)
    try:
        profiles.resolve(arguments)
        code: int = uvloop.run(arguments.run(arguments))
    except (KeyboardInterrupt, asyncio.CancelledError):  # the latter after a second signal
        code = EXIT_INTERRUPTED
    except ReaderGoneError:  # of entries, so only reading was left to do
        console.discard_output()
        return ExitCode.OK
    except Exception as error:
        code = _fail(error)
    return _finish(code)


def _check_order(top: Parser, given: list[str]) -> None:
    """Exit for an option before the command: argparse would take its value for the command."""
    first = given[0].partition("=")[0] if len(given) > 1 else ""
    if first.strip("-") and first.startswith("-") and first not in top.own_options:
        top.error(
            f"{first} is before the command; options come after it, as in `dledger get 7 --group g`"
        )


def _finish(code: int) -> int:
    """Write what is left of the output; return the exit code, which is not 0 if that fails."""
    try:
        console.flush()
    except OutputError as error:
        console.discard_output()
        printing.complain(f"dledger: {error}")
        return code or ExitCode.FAILED
    return code


def _fail(error: Exception) -> int:
    """Print the error in one line and return the exit code."""
    if isinstance(error, OutputError):
        console.discard_output()
    for kind, code in _EXIT_CODES:
        if isinstance(error, kind):
            printing.complain(f"dledger: {error}")
            return code
    if os.environ.get(TRACE_VARIABLE):
        raise error
    printing.complain(
        f"dledger: internal error: {type(error).__name__}: {error}; set {TRACE_VARIABLE}=1 for a "
        "traceback"
    )
    return ExitCode.FAILED
