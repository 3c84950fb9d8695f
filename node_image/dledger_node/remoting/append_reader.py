"""Reads the bodies of APPEND requests, the one kind of JSON that comes ten thousand times a second.

A client writes the same JSON around each of its bodies. That part is judged strictly when it is
seen first, and from then on only recognized; what is left to do for a request is its base64. So it
is with APPEND_IDEMPOTENT, whose last two numbers are read each time, and with APPEND_BATCH.
"""

import re
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from dledger_formats import json_objects
from dledger_formats.protocol import append_batch
from dledger_formats.protocol.producers import IdempotentAppendRequest
from dledger_formats.protocol.requests import (
    AppendEntryRequest,
    DLedgerResponseCode,
    Message,
    reads_numbers,
)

ENVELOPE_BYTES_MAX: Final = 1024
_MARK: Final = b'"body":'
_SAMPLE: Final = b'"AAAA"'
_SAMPLE_BODY: Final = bytes(3)
_NUMBERS: Final = re.compile(rb',"producer":(0|[1-9][0-9]{0,17}),"sequence":([1-9][0-9]{0,17})\}\Z')
_NUMBERS_BYTES_MAX: Final = 64
_decode_base64: Final = msgspec.json.Decoder(bytes).decode

Judgement: TypeAlias = DLedgerResponseCode | None


class AppendReader:
    """Reads those of one connection; `judge` says why a request is refused, or None."""

    def __init__(self, judge: Callable[[AppendEntryRequest], Judgement]) -> None:
        self._judge = judge
        self.reads_numbers: bool | None = None
        """Whether the client reads bytes only as numbers; its first APPEND with any tells."""
        # What stood around the last body, and what was judged of it; empty when there was none.
        self._before = self._after = b""
        self._judgement: Judgement = None

    def read(self, raw: bytes) -> tuple[Judgement, bytes]:
        """Why the request is refused, None if it is not; and its body. FormatError."""
        before, after = self._before, self._after
        if before and raw.startswith(before) and raw.endswith(after):
            try:
                # One whole JSON string of base64, or it is no such request.
                body = _decode_base64(raw[len(before) : len(raw) - len(after)])
            except ValueError:
                pass
            else:
                return self._judgement, body
        return self._read_strictly(raw)

    def _read_strictly(self, raw: bytes) -> tuple[Judgement, bytes]:
        json_objects.parse(raw)
        request = AppendEntryRequest.from_json(raw)
        if self.reads_numbers is None:
            self.reads_numbers = reads_numbers(raw)
        judgement = self._judge(request)
        # A quote inside of a JSON string is escaped: this can only be a key and its value's begin.
        at = raw.find(_MARK + b'"')
        if at >= 0:
            start = at + len(_MARK)
            before, after = raw[:start], raw[raw.find(b'"', start + 1) + 1 :]
            small = len(before) + len(after) <= ENVELOPE_BYTES_MAX
            if small and _decides_the_body(before, after, request.body):
                self._before, self._after, self._judgement = before, after, judgement
        return judgement, request.body


class IdempotentAppendReader:
    """Reads those APPEND_IDEMPOTENT of one connection; `judge` says why one is refused, or None."""

    def __init__(self, judge: Callable[[IdempotentAppendRequest], Judgement]) -> None:
        self._judge = judge
        # What stood before the last body, and what was judged of it; empty when there was none.
        self._before = b""
        self._judgement: Judgement = None

    def read(self, raw: bytes) -> tuple[Judgement, bytes, int, int]:
        """Why the request is refused, None if it is not; body, producer, sequence. FormatError."""
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
        json_objects.parse(raw)
        request = IdempotentAppendRequest.from_json(raw)
        judgement = self._judge(request)
        at = raw.find(_MARK + b'"')
        start = at + len(_MARK)
        numbers = _NUMBERS.match(raw, raw.find(b'"', start + 1) + 1)
        if at >= 0 and start <= ENVELOPE_BYTES_MAX and numbers is not None:
            # No inner object can have its end there, so what stands between is the body.
            self._before, self._judgement = raw[:start], judgement
        return judgement, request.body, request.producer, request.sequence


class AppendBatchReader:
    """Reads those APPEND_BATCH of one connection; `judge` says why one is refused, or None."""

    def __init__(self, judge: Callable[[Message], Judgement]) -> None:
        self._judge = judge
        # What was the last envelope, and what was judged of it; empty when there was none.
        self._envelope = b""
        self._judgement: Judgement = None

    def read(self, raw: bytes) -> tuple[Judgement, list[bytes]]:
        """Why the request is refused, None if it is not; and its bodies. FormatError."""
        envelope, bodies = append_batch.split(raw)
        if not envelope or envelope != self._envelope:
            json_objects.parse(envelope)
            judgement = self._judge(Message.from_json(envelope))
            if len(envelope) > ENVELOPE_BYTES_MAX:
                return judgement, bodies
            self._envelope, self._judgement = envelope, judgement
        return self._judgement, bodies


def _decides_the_body(before: bytes, after: bytes, body: bytes) -> bool:
    """Whether what stands between is the request's body, and not some inner object's."""
    try:
        sample = AppendEntryRequest.from_json(before + _SAMPLE + after)
    except json_objects.FormatError:
        return False
    return sample.body == _SAMPLE_BODY != body
