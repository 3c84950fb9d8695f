"""Loads each public name of `dledger_client` when it is first used.

The program `dledger` is in this package, too. It handles Ctrl-C before it loads anything else, and
names a missing library itself. So this module imports nothing that takes time.
"""

import sys

_PACKAGE = "dledger_client"
_MODULES = {
    "dledger_client.admin": ("GroupMembership", "GroupMetadata"),
    "dledger_client.append.outcomes": (
        "Acknowledged", "Appended", "Outcome", "Refused", "Unknown",
    ),
    "dledger_client.client": ("DLedgerClient",),
    "dledger_client.cluster.members": ("Timing",),
    "dledger_client.errors": (
        "AddressError", "BadAnswerError", "ClientError", "ConnectionLostError",
        "GroupUnreachableError", "NoEntryError", "NotLeaderError", "OutcomeUnknownError",
        "RefusedError",
    ),
    "dledger_client.read.entry_batch": ("EntryBatch",),
    "dledger_client.read.tail": ("LogBounds",),
    "dledger_client.sync": ("BlockingClient",),
    "dledger_formats.protocol.codes": ("DLedgerResponseCode",),
    "dledger_formats.protocol.entry": ("DLedgerEntry",),
    "dledger_formats.protocol.membership_change": ("ChangeKind",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name. Raises ModuleNotFoundError with advice if a library is missing."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}")
    import importlib

    from dledger_formats import missing_package

    try:
        found: object = getattr(importlib.import_module(_MODULE_OF[name]), name)
    except ModuleNotFoundError as error:
        raise missing_package.with_advice(_PACKAGE, "client", error) from None
    setattr(sys.modules[_PACKAGE], name, found)
    return found


def __dir__() -> list[str]:
    """Return the public names, and the names that were imported."""
    return sorted({*vars(sys.modules[_PACKAGE]), *_MODULE_OF})
