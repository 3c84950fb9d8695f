"""REGISTER_PRODUCER and APPEND_IDEMPOTENT, extensions of this project for safe retries.

    REGISTER_PRODUCER   request    {group, remoteId}
                        response   {code, group, leaderId, term, producer}
    APPEND_IDEMPOTENT   request    {group, remoteId, body, producer, sequence}
                        response   as to APPEND; index, pos and term are those of the first copy

A producer numbers its appends from 1 and may send each of them any number of times: it is stored
once (docs/idempotent-appends.md). A server without these requests, such as Java's, answers
REQUEST_CODE_NOT_SUPPORTED, so it cannot append twice by mistake.

Codes in addition to those of APPEND: UNKNOWN_PRODUCER, SEQUENCE_TOO_OLD and SEQUENCE_TOO_NEW. Each
means that this copy was not appended and never will be. Another copy may be in the log.
"""

from typing import Annotated, Final

import msgspec

from dledger_formats.log.channels import SEQUENCE_MAX
from dledger_formats.protocol.decoding import Int64
from dledger_formats.protocol.requests import Request, Response

REGISTER_PRODUCER: Final = 52011
APPEND_IDEMPOTENT: Final = 52012
"""The requests' codes in their frames, from this project's range (52000 to 52999)."""


def _minus_one() -> int:
    return -1


class RegisterProducerRequest(Request, kw_only=True, frozen=True):
    """Register a producer, which numbers its appends."""


class RegisterProducerResponse(Response, kw_only=True, frozen=True):
    """On SUCCESS a quorum holds the registration."""

    producer: Int64 = msgspec.field(default_factory=_minus_one)
    """The producer's identity, which no other registration ever gets."""


class IdempotentAppendRequest(Request, kw_only=True, frozen=True):
    """Append one entry with this body, unless the log has this sequence of this producer."""

    body: bytes
    producer: Annotated[int, msgspec.Meta(ge=0, le=SEQUENCE_MAX)]
    sequence: Annotated[int, msgspec.Meta(ge=1, le=SEQUENCE_MAX)]
