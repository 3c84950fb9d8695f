"""The behaviors that tests script for a member."""

import enum
from typing import TypeAlias

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.frames import RemotingCommand


class Fault(enum.Enum):
    """What a member does with a request instead of answering it."""

    NO_ANSWER = enum.auto()
    APPEND_WITHOUT_ANSWER = enum.auto()
    DISCONNECT = enum.auto()
    APPEND_AND_DISCONNECT = enum.auto()
    SEND_GARBAGE = enum.auto()
    GO_AWAY = enum.auto()
    """Read nothing more, send GO_AWAY to the client, and disconnect."""


Behavior: TypeAlias = Fault | DLedgerResponseCode | RemotingCommand
