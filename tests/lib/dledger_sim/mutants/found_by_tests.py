"""Bugs that seeds meet too rarely: the tests that a bug names run with the bug planted."""

import os
import shlex
import subprocess
import sys

from dledger_sim.mutants.hunt import Mutant

PASSED, FAILED = 0, 1
"""Exit codes of pytest."""


def is_found_by_tests(mutant: Mutant) -> bool:
    """Return whether a test of `mutant.found_by` fails with the bug, in a new process.

    Raises RuntimeError if no test ran.
    """
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "dledger_sim.mutants.planted"),
            *("-p", "no:cacheprovider", *shlex.split(mutant.found_by)),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MUTANT": mutant.name},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if finished.returncode not in (PASSED, FAILED):
        raise RuntimeError(f"{mutant.found_by}: {finished.stdout[-2000:]}{finished.stderr[-2000:]}")
    return finished.returncode == FAILED
