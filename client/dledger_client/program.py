"""The console script `dledger`: a plain sentence if a library is missing, else the command line."""

import sys

from dledger_formats import missing_package

FAILED = 1
"""`ExitCode.FAILED`, which cannot be imported if a library is missing."""


def main() -> int:
    """Run one command and return the exit code."""
    try:
        from dledger_client.cli import main as run
    except ModuleNotFoundError as error:
        sys.stderr.write(missing_package.advice("dledger", "client", error))
        return FAILED
    return run()
