"""APPEND_BATCH, an extension of this project: append many entries with one request.

    request    4 bytes: length of the JSON, then the JSON {group, remoteId}
               4 bytes: number of bodies, 1 to BODIES_MAX
               4 bytes for each body: its length
               the bodies
    response   as to APPEND; index and pos are those of the first entry

Numbers are big-endian. The entries are consecutive in the log. A server refuses all of them or
none; SUCCESS means that a quorum holds all. If the outcome is unknown, it is unknown for each
entry: the first ones may be in the log without the others.

A server without this request, such as Java's, answers REQUEST_CODE_NOT_SUPPORTED and appends
nothing. The batch append of Java's own classes never worked on the wire.
"""

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.requests import Request

APPEND_BATCH: Final = 52014
"""The request's code in its frame, from this project's range (52000 to 52999)."""
BODIES_MAX: Final = 1024
_U32: Final = struct.Struct(">I")


class AppendBatchRequest(Request, kw_only=True, frozen=True):
    """Append these bodies as consecutive entries."""

    bodies: Sequence[bytes]

    def to_bytes(self) -> bytes:
        """Encode. The caller limits the total length."""
        return encode_batch(Request(group=self.group, remote_id=self.remote_id), self.bodies)


def encode_batch(envelope: Request, bodies: Sequence[bytes]) -> bytes:
    """Encode an envelope and the bodies after it. The caller limits the total length."""
    encoded, count = envelope.to_json(), len(bodies)
    sizes = struct.pack(f">{count + 1}I", count, *map(len, bodies))
    return b"".join((_U32.pack(len(encoded)), encoded, sizes, *bodies))


def split(raw: bytes) -> tuple[bytes, list[bytes]]:
    """Split a request into the JSON of its envelope and the bodies. Raises FormatError."""
    try:
        at = _U32.size + _U32.unpack_from(raw)[0]
        (count,) = _U32.unpack_from(raw, at)
        if not 0 < count <= BODIES_MAX:
            raise FormatError(f"a batch of {count} bodies; 1 to {BODIES_MAX} are allowed")
        sizes_at = at + _U32.size
        sizes = struct.unpack_from(f">{count}I", raw, sizes_at)
    except struct.error as error:
        raise FormatError(f"a batch of {len(raw)} bytes ends too early: {error}") from error
    ends = list(accumulate(sizes, initial=sizes_at + count * _U32.size))
    if ends[-1] != len(raw):
        raise FormatError(f"the bodies of a batch of {len(raw)} bytes would end at {ends[-1]}")
    return raw[_U32.size : at], [raw[begin:end] for begin, end in pairwise(ends)]
