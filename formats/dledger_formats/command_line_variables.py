"""The environment variables of `dledger` and `dledger-audit`, which a node ignores."""

import difflib
from collections.abc import Iterable
from typing import Final

PREFIX: Final = "DLEDGER_CLIENT_"
"""Some settings of a node begin in this way, too."""
COMMAND_LINE_VARIABLES: Final = frozenset(
    PREFIX + name for name in (
        "SERVERS", "GROUP", "HTTP", "TRACE", "PROFILE", "ADMIN_TOKEN", "ADMIN_TOKEN_FILE",
        "AUDIT_TOKEN_FILE",
    )
)  # fmt: skip
_ALIKE: Final = 0.75
"""How similar a name must be to be a misspelled one; see `difflib`."""


def misspelled(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the first name that is nearly one of these variables, and that variable.

    Any other unknown name is ignored, since a later release may have it.
    """
    known = [name.removeprefix(PREFIX) for name in sorted(COMMAND_LINE_VARIABLES)]
    for name in sorted(names):
        if name.startswith(PREFIX) and name not in COMMAND_LINE_VARIABLES:
            rest = name.removeprefix(PREFIX)
            if near := difflib.get_close_matches(rest, known, n=1, cutoff=_ALIKE):
                return name, PREFIX + near[0]
    return None
