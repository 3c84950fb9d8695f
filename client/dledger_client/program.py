"""The console script `dledger`: a plain sentence if a library is missing, else the command line."""

import sys

FAILED = 1
"""`ExitCode.FAILED`, which cannot be imported if a library is missing."""


def main() -> int:
    """Run one command and return the exit code."""
    try:
        from dledger_client.cli import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("dledger_"):
            raise
        sys.stderr.write(
            f"dledger: the Python package {error.name} is not installed; install this program "
            "with: pip install 'dledger-operator[client]'\n"
        )
        return FAILED
    return run()
