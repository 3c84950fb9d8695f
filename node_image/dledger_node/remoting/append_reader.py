"""Readers for the bodies of APPEND requests, which may arrive at ten thousand per second.

A client writes the same JSON around each of its bodies. A reader decodes that envelope strictly the
first time, and compares bytes from then on, so that it only has to decode the base64. For
APPEND_IDEMPOTENT it also reads the last two numbers each time. Batches have their envelope separate
from the bodies.

A long array of numbers is decoded in parts, so that no turn of the loop must decode all of it.
"""

import re
from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol import append_batch
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.decoding import JSON_BYTES_MAX, reads_numbers
from dledger_formats.protocol.long_body import LongBody
from dledger_formats.protocol.producers import IdempotentAppendRequest, IdempotentBatchEnvelope
from dledger_formats.protocol.requests import AppendEntryRequest, Request

ENVELOPE_BYTES_MAX: Final = 1024
_MARK: Final = b'"body":'
_SAMPLE: Final = b'"AAAA"'
_SAMPLE_BODY: Final = bytes(3)
_NUMBERS: Final = re.compile(rb',"producer":(0|[1-9][0-9]{0,17}),"sequence":([1-9][0-9]{0,17})\}\Z')
_NUMBERS_BYTES_MAX: Final = 64
_decode_base64: Final = msgspec.json.Decoder(bytes).decode

Judgement: TypeAlias = DLedgerResponseCode | None
RequestT = TypeVar("RequestT", bound=Request)


class UnfinishedBodyError(Exception):
    """A part of a body has been decoded; read the same request again in a later turn."""


class _RequestsInParts(Generic[RequestT]):
    """Decodes requests of one kind strictly, and long bodies in several turns."""

    def __init__(self, kind: type[RequestT]) -> None:
        self._kind = kind
        # The request whose body is being read in parts.
        self._long_body: LongBody | None = None

    def read(self, raw: bytes) -> RequestT:
        """Decode a request. Raises FormatError, UnfinishedBodyError."""
        if len(raw) <= JSON_BYTES_MAX:
            return self._kind.from_json(raw)
        long_body, self._long_body = self._long_body, None
        if long_body is None or long_body.raw is not raw:
            long_body = LongBody(raw)
        if not long_body.read_part():
            self._long_body = long_body
            raise UnfinishedBodyError
        return self._kind.around(long_body)


class AppendReader:
    """Reads the APPEND requests of one connection.

    `judge` returns the code with which a request is refused, or None.
    """

    def __init__(self, judge: Callable[[AppendEntryRequest], Judgement]) -> None:
        self._judge = judge
        self.reads_numbers: bool | None = None
        """Whether the client reads bytes only as numbers; None until an APPEND has a body."""
        # The envelope around the last body, and the verdict on it; empty before the first.
        self._before = self._after = b""
        self._judgement: Judgement = None
        self._requests = _RequestsInParts(AppendEntryRequest)

    def read(self, raw: bytes) -> tuple[Judgement, bytes]:
        """Return the code of the refusal, or None, and the body.

        Raises FormatError, or UnfinishedBodyError if the body is long and not read yet.
        """
        before, after = self._before, self._after
        if before and raw.startswith(before) and raw.endswith(after):
            try:
                # This fails unless the bytes are exactly one JSON string of base64.
                body = _decode_base64(raw[len(before) : len(raw) - len(after)])
            except ValueError:
                pass
            else:
                return self._judgement, body
        return self._read_strictly(raw)

    def _read_strictly(self, raw: bytes) -> tuple[Judgement, bytes]:
        request = self._requests.read(raw)
        if self.reads_numbers is None:
            self.reads_numbers = reads_numbers(raw)
        judgement = self._judge(request)
        # A quote within a JSON string is escaped, so this must be a key and the start of its value.
        at = raw.find(_MARK + b'"')
        if at >= 0:
            start = at + len(_MARK)
            before, after = raw[:start], raw[raw.find(b'"', start + 1) + 1 :]
            small = len(before) + len(after) <= ENVELOPE_BYTES_MAX
            if small and _decides_the_body(before, after, request.body):
                self._before, self._after, self._judgement = before, after, judgement
        return judgement, request.body


class IdempotentAppendReader:
    """Reads the APPEND_IDEMPOTENT requests of one connection; `judge` as in AppendReader."""

    def __init__(self, judge: Callable[[IdempotentAppendRequest], Judgement]) -> None:
        self._judge = judge
        self._requests = _RequestsInParts(IdempotentAppendRequest)
        # The bytes before the last body, and the verdict on it; empty before the first.
        self._before = b""
        self._judgement: Judgement = None

    def read(self, raw: bytes) -> tuple[Judgement, bytes, int, int]:
        """Return the code of the refusal, or None, the body, the producer and the sequence.

        Raises FormatError, or UnfinishedBodyError if the body is long and not read yet.
        """
        before = self._before
        if before and raw.startswith(before):
            numbers = _NUMBERS.search(raw, max(len(before), len(raw) - _NUMBERS_BYTES_MAX))
            if numbers is not None:
                try:
                    body = _decode_base64(raw[len(before) : numbers.start()])
                except ValueError:
                    pass
                else:
                    return self._judgement, body, int(numbers[1]), int(numbers[2])
        return self._read_strictly(raw)

    def _read_strictly(self, raw: bytes) -> tuple[Judgement, bytes, int, int]:
        request = self._requests.read(raw)
        judgement = self._judge(request)
        at = raw.find(_MARK + b'"')
        start = at + len(_MARK)
        numbers = _NUMBERS.match(raw, raw.find(b'"', start + 1) + 1)
        if at >= 0 and start <= ENVELOPE_BYTES_MAX and numbers is not None:
            # No nested object can end there, so the bytes in between are the body.
            self._before, self._judgement = raw[:start], judgement
        return judgement, request.body, request.producer, request.sequence


class AppendBatchReader:
    """Reads the APPEND_BATCH requests of one connection; `judge` as in AppendReader."""

    def __init__(self, judge: Callable[[Request], Judgement]) -> None:
        self._judge = judge
        # The last envelope and the verdict on it; empty before the first.
        self._envelope = b""
        self._judgement: Judgement = None

    def read(self, raw: bytes) -> tuple[Judgement, list[bytes]]:
        """Return the code of the refusal, or None, and the bodies. Raises FormatError."""
        envelope, bodies = append_batch.split(raw)
        if not envelope or envelope != self._envelope:
            judgement = self._judge(Request.from_json(envelope))
            if len(envelope) > ENVELOPE_BYTES_MAX:
                return judgement, bodies
            self._envelope, self._judgement = envelope, judgement
        return self._judgement, bodies


class IdempotentBatchReader:
    """Reads the APPEND_IDEMPOTENT_BATCH requests of one connection; `judge` as in AppendReader."""

    def __init__(self, judge: Callable[[Request], Judgement]) -> None:
        self._judge = judge

    def read(self, raw: bytes) -> tuple[Judgement, IdempotentBatchEnvelope, list[bytes]]:
        """Return the code of the refusal, or None, the envelope, and the bodies.

        The envelope is decoded each time, since the sequence differs. Raises FormatError.
        """
        encoded, bodies = append_batch.split(raw)
        envelope = IdempotentBatchEnvelope.from_json(encoded)
        return self._judge(envelope), envelope, bodies


def _decides_the_body(before: bytes, after: bytes, body: bytes) -> bool:
    """Return whether the bytes in between are the request's body, not that of a nested object."""
    try:
        sample = AppendEntryRequest.from_json(before + _SAMPLE + after)
    except FormatError:
        return False
    return sample.body == _SAMPLE_BODY != body
