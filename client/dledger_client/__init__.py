"""The client of a DLedger group, of this project or of Java DLedger.

`client` is the asyncio API, `sync` the blocking API and `cli` the command line. The public names
can be imported from here, and are loaded at first use (`public_names`).

Belongs here: finding and following the leader, keeping requests in flight, and reporting the
outcome of each. Does not belong here: encoding frames and bodies (`dledger_formats`), and any
decision of a node.
"""

from typing import TYPE_CHECKING

__all__ = [
    "Acknowledged",
    "AddressError",
    "Appended",
    "BadAnswerError",
    "BlockingClient",
    "ChangeKind",
    "ClientError",
    "ConnectionLostError",
    "DLedgerClient",
    "DLedgerEntry",
    "EntryBatch",
    "GroupMembership",
    "GroupMetadata",
    "GroupUnreachableError",
    "LogBounds",
    "NoEntryError",
    "NotLeaderError",
    "Outcome",
    "OutcomeUnknownError",
    "Refused",
    "RefusedError",
    "Timing",
    "Unknown",
]

if TYPE_CHECKING:
    from dledger_client.admin import GroupMembership, GroupMetadata
    from dledger_client.append.outcomes import Acknowledged, Appended, Outcome, Refused, Unknown
    from dledger_client.client import DLedgerClient
    from dledger_client.cluster.members import Timing
    from dledger_client.errors import (
        AddressError,
        BadAnswerError,
        ClientError,
        ConnectionLostError,
        GroupUnreachableError,
        NoEntryError,
        NotLeaderError,
        OutcomeUnknownError,
        RefusedError,
    )
    from dledger_client.read.entry_batch import EntryBatch
    from dledger_client.read.tail import LogBounds
    from dledger_client.sync import BlockingClient
    from dledger_formats.protocol.entry import DLedgerEntry
    from dledger_formats.protocol.membership_change import ChangeKind
else:
    from dledger_client.public_names import __dir__, __getattr__  # noqa: F401 - Python calls them
