"""REGISTER_PRODUCER, APPEND_IDEMPOTENT and APPEND_IDEMPOTENT_BATCH: extensions for safe retries.

    REGISTER_PRODUCER   request    {group, remoteId}
                        response   {code, group, leaderId, term, producer}
    APPEND_IDEMPOTENT   request    {group, remoteId, body, producer, sequence}
                        response   as to APPEND; index, pos and term are those of the first copy
    APPEND_IDEMPOTENT_BATCH
                        request    as APPEND_BATCH, with {group, remoteId, producer, sequence} as
                                   its JSON; the bodies have consecutive sequences, `sequence` first
                        response   as to APPEND_BATCH

A producer numbers its appends from 1 and may send each of them any number of times: it is stored
once (docs/idempotent-appends.md). A server without these requests, such as Java's, answers
REQUEST_CODE_NOT_SUPPORTED, so it cannot append twice by mistake.

Codes in addition to those of APPEND: UNKNOWN_PRODUCER, SEQUENCE_TOO_OLD and SEQUENCE_TOO_NEW. Each
means that this copy was not appended and never will be. Another copy may be in the log.

A batch is appended only as a whole, and only if all its sequences are above every sequence of the
producer in the log. Otherwise the answer is SEQUENCES_NOT_NEW, nothing is appended, and the client
sends the bodies one by one with the same sequences. So a batch never has to be compared with the
log entry by entry.
"""

from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

import msgspec

from dledger_formats.log.channels import SEQUENCE_MAX
from dledger_formats.protocol.append_batch import encode_batch
from dledger_formats.protocol.decoding import Int64
from dledger_formats.protocol.requests import Request, Response

REGISTER_PRODUCER: Final = 52011
APPEND_IDEMPOTENT: Final = 52012
APPEND_IDEMPOTENT_BATCH: Final = 52016
"""The requests' codes in their frames, from this project's range (52000 to 52999)."""

ProducerId: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=SEQUENCE_MAX)]
SequenceNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=SEQUENCE_MAX)]


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
    producer: ProducerId
    sequence: SequenceNumber


class IdempotentBatchEnvelope(Request, kw_only=True, frozen=True):
    """The JSON of an APPEND_IDEMPOTENT_BATCH."""

    producer: ProducerId
    sequence: SequenceNumber
    """The sequence of the first body."""


class IdempotentBatchRequest(Request, kw_only=True, frozen=True):
    """Append these bodies as consecutive entries, unless the log may have one of them."""

    bodies: Sequence[bytes]
    producer: ProducerId
    sequence: SequenceNumber
    """The sequence of the first body; each later body has the next one."""

    def to_bytes(self) -> bytes:
        """Encode. The caller limits the total length."""
        envelope = IdempotentBatchEnvelope(
            group=self.group,
            remote_id=self.remote_id,
            producer=self.producer,
            sequence=self.sequence,
        )
        return encode_batch(envelope, self.bodies)
