"""The console script `dledger`: a plain sentence if a library is missing, else the command line."""

import sys

from dledger_formats import interrupts

FAILED = 1
"""`ExitCode.FAILED`, which cannot be imported if a library is missing."""


def main() -> int:
    """Run one command and return the exit code."""
    interrupts.end_the_process()
    try:
        from dledger_client.cli import main as run
    except ModuleNotFoundError as error:
        from dledger_formats import missing_package

        sys.stderr.write(missing_package.advice("dledger", "client", error))
        return FAILED
    try:
        interrupts.raise_keyboard_interrupt()
        return run()
    except KeyboardInterrupt:  # outside of a command, which handles it itself
        return interrupts.EXIT_INTERRUPTED
    finally:
        interrupts.end_the_process()
