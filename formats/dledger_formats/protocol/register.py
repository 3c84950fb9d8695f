"""The register, DLedger's example of a state machine: a map from numbers to numbers.

    body of an entry   key, value: two signed 32-bit numbers, little-endian, as in DLedger's example

    READ_REGISTER      request    {group, remoteId, key}
                       response   {code, group, leaderId, term, key, value}

An ordinary APPEND of such a body sets a register. READ_REGISTER is an extension of this project. An
answer with SUCCESS includes every append that was acknowledged before the request arrived. It has
no `value` if the register was never set.

Codes: SUCCESS; NOT_LEADER; UNSUPPORTED if the group has another state machine, or none;
LEADER_PENDING_FULL, or LEADER_NOT_READY if the committed entries were not applied in time: send the
request again; UNKNOWN_GROUP and UNKNOWN_MEMBER as for every request.
"""

import struct
from typing import Final

from dledger_formats.protocol.decoding import Int32
from dledger_formats.protocol.requests import Request, Response

READ_REGISTER: Final = 52020
"""The request's code in its frame, from this project's range (52000 to 52999)."""
SET: Final = struct.Struct("<ii")
"""Key and value: the body of an entry that sets a register."""
NUMBER_MIN: Final = -(1 << 31)
NUMBER_MAX: Final = (1 << 31) - 1


class ReadRegisterRequest(Request, kw_only=True, frozen=True):
    """Read the value of one register."""

    key: Int32


class ReadRegisterResponse(Response, kw_only=True, frozen=True):
    """On SUCCESS the value; None if the register was never set."""

    key: Int32 | None = None
    value: Int32 | None = None
