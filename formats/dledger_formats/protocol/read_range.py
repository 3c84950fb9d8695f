"""READ_RANGE, an extension of this project: committed entries as they are stored.

    request    {group, remoteId, beginIndex, consistency, lastIndex, maxSize, waitMs}
    response   4 bytes: length of the JSON, big-endian, then the JSON
               {code, group, leaderId, term, ledgerBeginIndex, committedIndex}
               on SUCCESS the stored bytes of whole entries from `beginIndex` on

The entries lie in one segment, none is after `lastIndex` (-1: no limit) or the committed index, and
together they have at most `maxSize` bytes and the server's own limit, unless the first one alone
has more. The server does not verify their checksums: the client does (`dledger_formats.log.runs`),
and asks with GET for an entry that is damaged. The member then finds the damage itself.

On SUCCESS there is at least one entry, unless the request waited: with a `waitMs`, the member
answers as soon as the entry `beginIndex` is committed, and without entries after that time, or
earlier if too many requests wait. Where many requests wait, an answer may come up to 100 ms later,
with more entries.

Codes are those of GET and FOLLOW. Java's servers answer REQUEST_CODE_NOT_SUPPORTED.
"""

import struct
from typing import Final, Self

import msgspec

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.decoding import Int32, Int64
from dledger_formats.protocol.requests import ReadRequest, Response

READ_RANGE: Final = 52015
"""The request's code in its frame, from this project's range (52000 to 52999)."""
NO_LAST_INDEX: Final = -1
_U32: Final = struct.Struct(">I")


def _no_last_index() -> int:
    return NO_LAST_INDEX


class ReadRangeRequest(ReadRequest, kw_only=True, frozen=True):
    """Read entries from `begin_index` on."""

    max_size: Int32
    last_index: Int64 = msgspec.field(default_factory=_no_last_index)
    wait_ms: Int32 = 0
    """How long to wait for the first entry; `follow.WAIT_MS_MAX` applies."""


class ReadRangeResponse(Response, kw_only=True, frozen=True):
    """The answer, without the entries when it is encoded by a server."""

    ledger_begin_index: Int64 = -1
    """The first index that the member still has."""
    committed_index: Int64 = -1
    """The last index that may be read; -1 if no entry is committed."""
    stored: memoryview = msgspec.field(default=memoryview(b""), name="")
    """The stored bytes of the entries; not part of the JSON."""

    def head(self) -> bytes:
        """Encode everything before the entries."""
        envelope = self.to_json()
        return _U32.pack(len(envelope)) + envelope

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Decode. Raises FormatError."""
        if len(raw) < _U32.size:
            raise FormatError(f"an answer of {len(raw)} bytes to READ_RANGE ends too early")
        at = _U32.size + _U32.unpack_from(raw)[0]
        response = cls.from_json(raw[_U32.size : at])
        msgspec.structs.force_setattr(response, "stored", memoryview(raw)[at:])
        return response
