"""`dledger`: the command line for DLedger groups.

dledger append flights.jsonl --servers orders-nodes:40911 --group orders
dledger get 0..
dledger tail
dledger status
"""

import os
import sys
from collections.abc import Sequence
from typing import Final

import argcomplete
import uvloop

from dledger_client.commands import (
    append,
    bench,
    completion,
    get,
    group,
    member,
    register,
    status,
    tail,
    transfer,
)
from dledger_client.commands.common import ExitCode, Parser, UsageError
from dledger_client.errors import (
    ClientError,
    GroupUnreachableError,
    OutcomeUnknownError,
    RefusedError,
)
from dledger_client.local.errors import MemberFailedError

TRACE_VARIABLE: Final = "DLEDGER_CLIENT_TRACE"
EXIT_INTERRUPTED: Final = 130
_EXIT_CODES: Final = (
    (UsageError, ExitCode.USAGE),
    (MemberFailedError, ExitCode.FAILED),
    (GroupUnreachableError, ExitCode.UNREACHABLE),
    (OutcomeUnknownError, ExitCode.UNKNOWN),
    (RefusedError, ExitCode.REFUSED),
    (ClientError, ExitCode.UNREACHABLE),
)
"""Exit code of each error; the first match applies."""


def parser() -> Parser:
    """Create the parser of the whole command line."""
    top = Parser(prog="dledger", description="Append to, read and manage DLedger groups.")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (
        append, get, tail, register, group, member, status, transfer, bench, completion,
    ):  # fmt: skip
        command.add_parser(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    top = parser()
    argcomplete.autocomplete(top)  # has an effect only when a shell requests completions
    arguments = top.parse_args(argv)
    try:
        code: int = uvloop.run(arguments.run(arguments))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of the output, such as `head`, has exited. Discard the buffered output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except Exception as error:
        return _fail(error)
    return code


def _fail(error: Exception) -> int:
    """Print the error in one line and return the exit code."""
    sys.stdout.flush()
    for kind, code in _EXIT_CODES:
        if isinstance(error, kind):
            print(f"dledger: {error}", file=sys.stderr)
            return code
    if os.environ.get(TRACE_VARIABLE):
        raise error
    print(
        f"dledger: internal error: {type(error).__name__}: {error}; set {TRACE_VARIABLE}=1 for a "
        "traceback",
        file=sys.stderr,
    )
    return ExitCode.FAILED
