"""The register, DLedger's example of a state machine: a map from numbers to numbers.

    body of an entry   key, value: two signed 32-bit numbers, little-endian, as in DLedger's example

    READ_REGISTER      request    {group, remoteId, key}
                       response   {code, group, leaderId, term, key, value}

A register is set by an ordinary APPEND of such a body. READ_REGISTER is a request of our own: the
answer of SUCCESS knows all that was acknowledged before the request came. It has no `value` when
the register was never set.

Codes: SUCCESS; NOT_LEADER; UNSUPPORTED where another state machine is kept, or none;
LEADER_PENDING_FULL, and LEADER_NOT_READY when what is committed was not applied in time, after both
of which the request may be sent again; UNKNOWN_GROUP and UNKNOWN_MEMBER as everywhere.
"""

import struct
from typing import Final

from dledger_formats.protocol.requests import Int32, Message

READ_REGISTER: Final = 52020
"""The request's code in its frame, among those that are ours (52000 to 52999)."""
SET: Final = struct.Struct("<ii")
"""Key and value: the body of an entry that sets a register."""
NUMBER_MIN: Final = -(1 << 31)
NUMBER_MAX: Final = (1 << 31) - 1


class ReadRegisterRequest(Message, kw_only=True, frozen=True):
    """What is the value of this register?"""

    key: Int32


class ReadRegisterResponse(Message, kw_only=True, frozen=True):
    """The value on SUCCESS; None when the register was never set."""

    key: Int32 | None = None
    value: Int32 | None = None
