"""The console script `dledger-operator`: help that needs no library, then the program."""

import os
import sys
from collections.abc import Sequence
from typing import Final

from dledger_operator import config

START_ERROR: Final = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the operator; return the exit code. Print the help even if a library is missing."""
    given = sys.argv[1:] if arguments is None else arguments
    if {"-h", "--help", "--version"} & set(given):
        config.read(given, os.environ)  # exits
    try:
        from dledger_operator.main import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("dledger_"):
            raise
        print(  # noqa: T201 - logging is not set up yet
            f"dledger-operator: the Python package {error.name} is not installed; install this "
            "program with: pip install 'dledger-operator[operator]'",
            file=sys.stderr,
        )
        return START_ERROR
    return run(given)
