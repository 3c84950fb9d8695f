"""The console script `dledger-node`: help that needs no library, then one of its commands."""

import os
import sys
from collections.abc import Sequence

from dledger_formats import interrupts

FAILED = 1
"""The exit code if a library is missing, the same as for a member that cannot run."""
STORE = "store"
SEED = "seed"


def main() -> int:
    """Run one member, `dledger-node store` or `dledger-node seed`; return the exit code.

    Print the help even if a library is missing.
    """
    interrupts.end_the_process()
    from dledger_formats import console

    return console.run("dledger-node", lambda: _run(sys.argv[1:]), failed=FAILED)


def _run(given: Sequence[str]) -> int:
    try:
        # Imported here, so that a starting member does not wait for modules that it never uses.
        if given[:1] == [STORE]:
            from dledger_node.store_command.command import main as run_store
        elif given[:1] == [SEED]:
            from dledger_node.store_command.seed import main as run_seed
        elif given:
            from dledger_node.usage import main as print_usage
        else:
            from dledger_node.main import main as run_member
    except ModuleNotFoundError as error:
        from dledger_formats import missing_package

        sys.stderr.write(missing_package.advice("dledger-node", "node", error))
        return FAILED
    interrupts.raise_keyboard_interrupt()
    if given[:1] == [STORE]:
        return run_store(given[1:])
    if given[:1] == [SEED]:
        return run_seed(given[1:], os.environ)
    return print_usage(given) if given else run_member()
