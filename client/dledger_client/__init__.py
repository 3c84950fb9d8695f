"""The client of a DLedger group, of this project or of Java DLedger.

The public names can be imported from here, and are loaded at first use (`public_names`).

Belongs here: finding and following the leader, keeping requests in flight, and reporting the
outcome of each. Does not belong here: encoding frames and bodies (`dledger_formats`), and any
decision of a node.

What users call
    client        the asyncio API
    sync          the blocking API
    console_script, cli  the command line `dledger`
    commands      its commands
    public_names  loads the public names
    errors        the errors of the client
An open client
    session       how a request starts and ends
    append        appends and their outcomes
    read          reads, ranges and tailing
    register      registers of a group that runs the register state machine
    admin         metadata, membership changes and leadership transfers
    calls         requests to the leader, and when they are sent again
    cluster       addresses, connections, and the search for the leader
    tasks         tasks that end with their owner
    same_loop     refuse calls from another event loop or a forked process
For the commands
    local         a group of processes on this machine
    exports       exports of a log
    opening, paced  files whose other end may let a program wait
"""

# Type checkers take this name for true. An import of `typing` would take most of the time before
# the program `dledger` handles Ctrl-C.
TYPE_CHECKING = False

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
    "DLedgerResponseCode",
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
    from dledger_formats.protocol.codes import DLedgerResponseCode
    from dledger_formats.protocol.entry import DLedgerEntry
    from dledger_formats.protocol.membership_change import ChangeKind
else:
    from dledger_client.public_names import __dir__, __getattr__  # noqa: F401 - Python calls them
