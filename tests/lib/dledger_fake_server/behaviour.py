"""What a member may be told to do with a request."""

import enum
from typing import TypeAlias

from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.requests import DLedgerResponseCode


class Instead(enum.Enum):
    """What a member does with an append instead of answering it."""

    KEEP_SILENT = enum.auto()
    APPEND_AND_KEEP_SILENT = enum.auto()
    HANG_UP = enum.auto()
    APPEND_AND_HANG_UP = enum.auto()
    SEND_GARBAGE = enum.auto()


Behaviour: TypeAlias = Instead | DLedgerResponseCode | RemotingCommand
