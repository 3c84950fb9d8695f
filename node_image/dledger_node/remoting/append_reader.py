"""Reads the bodies of APPEND requests, the one kind of JSON that comes ten thousand times a second.

A client writes the same JSON around each of its bodies. That part is judged strictly when it is
seen first, and from then on only found again; what is left to do for a request is its base64.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from dledger_formats import json_objects
from dledger_formats.requests import AppendEntryRequest, DLedgerResponseCode

ENVELOPES_MAX: Final = 16
ENVELOPE_BYTES_MAX: Final = 1024
_MARK: Final = b'"body":"'
_SAMPLE: Final = b'"AAAA"'
_SAMPLE_BODY: Final = bytes(3)
_decode_base64: Final = msgspec.json.Decoder(bytes).decode

Judgement: TypeAlias = DLedgerResponseCode | None


class AppendReader:
    """Reads those of one connection; `judge` says why a request is refused, or None."""

    def __init__(self, judge: Callable[[AppendEntryRequest], Judgement]) -> None:
        self._judge = judge
        self._envelopes: dict[tuple[bytes, bytes], Judgement] = {}

    def read(self, raw: bytes) -> tuple[Judgement, bytes]:
        """Why the request is refused, None if it is not; and its body. FormatError."""
        # A quote inside of a JSON string is escaped: this can only be a key and its value's begin.
        start = raw.find(_MARK) + len(_MARK) - 1
        end = raw.find(b'"', start + 1) + 1
        envelope = (raw[:start], raw[end:])
        if envelope in self._envelopes:
            try:
                return self._envelopes[envelope], _decode_base64(raw[start:end])
            except ValueError:  # not base64, or without its padding
                pass
        return self._read_strictly(raw, envelope)

    def _read_strictly(self, raw: bytes, envelope: tuple[bytes, bytes]) -> tuple[Judgement, bytes]:
        json_objects.parse(raw)
        request = AppendEntryRequest.from_json(raw)
        judgement = self._judge(request)
        before, after = envelope
        if (
            before.endswith(_MARK[:-1])
            and len(before) + len(after) <= ENVELOPE_BYTES_MAX
            and _decides_the_body(before, after, request.body)
        ):
            if len(self._envelopes) >= ENVELOPES_MAX:
                self._envelopes.clear()
            self._envelopes[envelope] = judgement
        return judgement, request.body


def _decides_the_body(before: bytes, after: bytes, body: bytes) -> bool:
    """Whether what stands between is the request's body, and not some inner object's."""
    try:
        sample = AppendEntryRequest.from_json(before + _SAMPLE + after)
    except json_objects.FormatError:
        return False
    return sample.body == _SAMPLE_BODY != body
