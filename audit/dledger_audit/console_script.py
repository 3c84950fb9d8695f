"""The console script `dledger-audit`: help that needs no library, then the program."""

import sys
from collections.abc import Sequence

from dledger_formats import interrupts


def main() -> int:
    """Run the audit; return the exit code. Print the help even if a library is missing."""
    interrupts.end_the_process()
    from dledger_formats import console
    from dledger_formats.audit import ExitCode

    return console.run("dledger-audit", lambda: _run(sys.argv[1:]), failed=ExitCode.FAILED)


def _run(given: Sequence[str]) -> int:
    from dledger_audit import arguments as command_line
    from dledger_audit.executors import program as executor
    from dledger_formats import missing_package
    from dledger_formats.audit import ExitCode

    if given[:1] == [executor.EXECUTOR]:
        executor.main()
    command_line.parse(given)  # exits after the help, or for a wrong option
    try:
        from dledger_audit.main import main as run
    except ModuleNotFoundError as error:
        sys.stderr.write(missing_package.advice("dledger-audit", "audit", error))
        return ExitCode.FAILED
    interrupts.raise_keyboard_interrupt()
    return run(given)
