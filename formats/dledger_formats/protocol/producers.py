"""REGISTER_PRODUCER and APPEND_IDEMPOTENT, requests of our own: appends that may be sent again.

    REGISTER_PRODUCER   request    {group, remoteId}
                        response   {code, group, leaderId, term, producer}
    APPEND_IDEMPOTENT         request    {group, remoteId, body, producer, sequence}
                        response   as to APPEND; index, pos and term are those of the first copy

A producer numbers its appends from 1 on and may send each as often as it likes: it is in the log
once (docs/idempotent-appends.md). A server that knows nothing of this, as Java's, does not know the
codes and answers REQUEST_CODE_NOT_SUPPORTED, so it cannot append twice by mistake.

Codes beside those of APPEND, all of which say that this copy was not appended and never will be:
UNKNOWN_PRODUCER, SEQUENCE_TOO_OLD, SEQUENCE_TOO_NEW. Another copy may be in the log.
"""

from typing import Annotated, Final

import msgspec

from dledger_formats.log.channels import SEQUENCE_MAX
from dledger_formats.protocol.requests import Int64, Message

REGISTER_PRODUCER: Final = 52011
APPEND_IDEMPOTENT: Final = 52012
"""The requests' codes in their frames, among those that are ours (52000 to 52999)."""


def _minus_one() -> int:
    return -1


class RegisterProducerRequest(Message, kw_only=True, frozen=True):
    """Let me number my appends."""


class RegisterProducerResponse(Message, kw_only=True, frozen=True):
    """On SUCCESS a quorum holds the registration."""

    producer: Int64 = msgspec.field(default_factory=_minus_one)
    """The producer's identity, given out once and never again."""


class IdempotentAppendRequest(Message, kw_only=True, frozen=True):
    """Append one entry with this body, unless this sequence of this producer is in the log."""

    body: bytes
    producer: Annotated[int, msgspec.Meta(ge=0, le=SEQUENCE_MAX)]
    sequence: Annotated[int, msgspec.Meta(ge=1, le=SEQUENCE_MAX)]
