"""The console script `dledger-operator`: help that needs no library, then the program."""

import os
import sys
from collections.abc import Sequence
from typing import Final

from dledger_formats import missing_package
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
        sys.stderr.write(missing_package.advice("dledger-operator", "operator", error))
        return START_ERROR
    return run(given)
