"""APPEND_BATCH, a request of our own: append many entries for the price of one request.

    request    4 bytes and so many of JSON      {group, remoteId}
               4 bytes                          how many bodies: 1 to BODIES_MAX
               4 bytes for each                 its length
               the bodies
    response   as to APPEND; index and pos are those of the first entry

Numbers are big-endian. The entries follow one another in the log, with nothing between them. All of
them are refused, or none; SUCCESS says that a quorum holds all. An answer that leaves the outcome
open does so for each of them: those that come first may be in the log without the others.

A server that knows nothing of this, as Java's, answers REQUEST_CODE_NOT_SUPPORTED, and appends
nothing. What Java's own classes call a batch append never worked on the wire.
"""

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.requests import Message

APPEND_BATCH: Final = 52014
"""The request's code in its frame, among those that are ours (52000 to 52999)."""
BODIES_MAX: Final = 1024
_U32: Final = struct.Struct(">I")


class AppendBatchRequest(Message, kw_only=True, frozen=True):
    """Append these bodies, one behind the other."""

    bodies: Sequence[bytes]

    def to_bytes(self) -> bytes:
        """Encode; the length of it all is left to the caller."""
        envelope = Message(group=self.group, remote_id=self.remote_id).to_json()
        count = len(self.bodies)
        sizes = struct.pack(f">{count + 1}I", count, *map(len, self.bodies))
        return b"".join((_U32.pack(len(envelope)), envelope, sizes, *self.bodies))


def split(raw: bytes) -> tuple[bytes, list[bytes]]:
    """Take a request apart: the envelope's JSON as it came, and the bodies. FormatError."""
    try:
        at = _U32.size + _U32.unpack_from(raw)[0]
        (count,) = _U32.unpack_from(raw, at)
        if not 0 < count <= BODIES_MAX:
            raise FormatError(f"a batch of {count} bodies; 1 to {BODIES_MAX} are allowed")
        sizes_at = at + _U32.size
        sizes = struct.unpack_from(f">{count}I", raw, sizes_at)
    except struct.error as error:
        raise FormatError(f"a batch of {len(raw)} bytes ends too soon: {error}") from error
    ends = list(accumulate(sizes, initial=sizes_at + count * _U32.size))
    if ends[-1] != len(raw):
        raise FormatError(f"the bodies of a batch of {len(raw)} bytes would end at {ends[-1]}")
    return raw[_U32.size : at], [raw[begin:end] for begin, end in pairwise(ends)]
