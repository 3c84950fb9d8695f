"""The console script `dledger-audit`: help that needs no library, then the program."""

import sys
from collections.abc import Sequence

from dledger_audit import arguments as command_line
from dledger_audit.executors import program as executor
from dledger_formats import console, missing_package
from dledger_formats.audit import ExitCode


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the audit; return the exit code. Print the help even if a library is missing."""
    given = sys.argv[1:] if arguments is None else arguments
    return console.run("dledger-audit", lambda: _run(given), failed=ExitCode.FAILED)


def _run(given: Sequence[str]) -> int:
    if given[:1] == [executor.EXECUTOR]:
        executor.main()
    command_line.parse(given)  # exits after the help, or for a wrong option
    try:
        from dledger_audit.main import main as run
    except ModuleNotFoundError as error:
        sys.stderr.write(missing_package.advice("dledger-audit", "audit", error))
        return ExitCode.FAILED
    return run(given)
