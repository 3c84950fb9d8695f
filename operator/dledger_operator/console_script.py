"""The console script `dledger-operator`: help that needs no library, then the program."""

import os
import sys
from collections.abc import Sequence

from dledger_formats import interrupts

START_ERROR = 1


def main() -> int:
    """Run the operator; return the exit code. Print the help even if a library is missing."""
    interrupts.end_the_process()
    from dledger_formats import console

    return console.run("dledger-operator", lambda: _run(sys.argv[1:]), failed=START_ERROR)


def _run(given: Sequence[str]) -> int:
    from dledger_formats import missing_package
    from dledger_operator import config

    if {"-h", "--help", "--version"} & set(given):
        config.read(given, os.environ)  # exits
    try:
        from dledger_operator.main import main as run
    except ModuleNotFoundError as error:
        sys.stderr.write(missing_package.advice("dledger-operator", "operator", error))
        return START_ERROR
    interrupts.raise_keyboard_interrupt()
    return run(given)
