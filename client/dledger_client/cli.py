"""`dledger`: the command line of any DLedger group.

dledger append flights.jsonl --servers orders-nodes:40911 --group orders
dledger get --first 0 --last end
dledger group
dledger status
"""

import argparse
import os
import sys
from collections.abc import Sequence

import uvloop

from dledger_client.commands import append, get, group, status
from dledger_client.commands.common import ExitCode, UsageError
from dledger_client.errors import (
    ClientError,
    GroupUnreachableError,
    OutcomeUnknownError,
    RefusedError,
)
from dledger_client.local.errors import MemberFailedError


def parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line."""
    top = argparse.ArgumentParser(prog="dledger", description="Append to and read DLedger groups.")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (append, get, group, status):
        command.add_parser(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = parser().parse_args(argv)
    try:
        code: int = uvloop.run(arguments.run(arguments))
        sys.stdout.flush()
    except UsageError as error:
        return _fail(error, ExitCode.USAGE)
    except GroupUnreachableError as error:
        return _fail(error, ExitCode.UNREACHABLE)
    except OutcomeUnknownError as error:
        return _fail(error, ExitCode.UNKNOWN)
    except MemberFailedError as error:
        return _fail(error, ExitCode.FAILED)
    except ClientError as error:
        code = ExitCode.REFUSED if isinstance(error, RefusedError) else ExitCode.UNREACHABLE
        return _fail(error, code)
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does; what is buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    return code


def _fail(error: Exception, code: int) -> int:
    sys.stdout.flush()
    print(f"dledger: {error}", file=sys.stderr)
    return code
