"""The body of a request that is too long to be parsed as JSON.

Only the value of the key `body` may be long: one string of base64, or one array of numbers. It is
found without a parser and replaced by one sample, then by another, and the short request is parsed
strictly. If the parsed body equals the sample both times, the value was the body's.
"""

import re
from collections.abc import Callable
from typing import Annotated, Final

import msgspec

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.decoding import (
    StructT,
    decode_strictly,
    low_bytes,
    to_bytes,
)

ENVELOPE_BYTES_MAX: Final = 8 * 1024
"""Bytes besides the body; a client of ours writes 100."""
PART_BYTES: Final = 64 * 1024
"""Bytes of an array of numbers that one step decodes; they take about 1 ms."""
SAMPLES: Final = ((b'"AAAA"', b"\0\0\0"), (b'"AQID"', b"\1\2\3"))
"""Two values in JSON, and their bytes."""

_KEY: Final = re.compile(rb'"body"[ \t\r\n]*:[ \t\r\n]*(?=["[])')
_decode_base64: Final = msgspec.json.Decoder(bytes).decode
_decode_numbers: Final = msgspec.json.Decoder(
    list[Annotated[int, msgspec.Meta(ge=-128, le=255)]]
).decode


class LongBody:
    """A request divided at its body, which is decoded in steps of bounded cost."""

    def __init__(self, raw: bytes) -> None:
        """Divide a request. Raises FormatError if it has no body, or too much besides it."""
        found = _KEY.search(raw, 0, ENVELOPE_BYTES_MAX)
        begin = found.end() if found else len(raw)
        end = raw.find(b'"' if raw[begin : begin + 1] == b'"' else b"]", begin + 1) + 1
        if not end or len(raw) - (end - begin) > ENVELOPE_BYTES_MAX:
            raise FormatError(
                f"a request of {len(raw)} bytes has no body, or more than {ENVELOPE_BYTES_MAX} "
                "bytes besides it"
            )
        self.raw = raw
        self.before = raw[:begin]
        """The bytes before the value of the body."""
        self.after = raw[end:]
        """The bytes after the value of the body."""
        self._begin, self._end = begin, end
        # The next byte of the array; the base64 is decoded in one step.
        self._at = begin + 1
        self._decoded = bytearray()
        self._done = False

    @property
    def body(self) -> bytes:
        """What has been decoded; the whole body once `read_part` has returned True."""
        return bytes(self._decoded)

    def read_part(self) -> bool:
        """Decode the next part; return whether that was the last. Raises FormatError."""
        raw, end = self.raw, self._end
        if self._done:
            return True
        if raw[self._begin : self._begin + 1] == b'"':
            self._decoded += _base64(raw[self._begin : end])
            self._done = True
            return True
        comma = raw.rfind(b",", self._at, self._at + PART_BYTES)
        last = end - self._at <= PART_BYTES
        if not last and comma < 0:
            raise FormatError("a number of the body is too long")
        stop = end - 1 if last else comma
        self._decoded += _numbers(raw[self._at : stop])
        self._at = stop + 1
        self._done = last
        return last


def decode_around(decode: Callable[[bytes], StructT], long_body: LongBody) -> StructT:
    """Decode a request whose body has been read; it has a field `body`. Raises FormatError."""
    before, after = long_body.before, long_body.after
    for value, sample in SAMPLES:
        request = decode_strictly(decode, before + value + after)
        if request.body != sample:  # type: ignore[attr-defined]
            raise FormatError("the long value of a request is not its body")
    return msgspec.structs.replace(request, body=long_body.body)


def _base64(value: bytes) -> bytes:
    try:
        return _decode_base64(value)
    except ValueError:
        return to_bytes(value[1:-1].decode("ascii", "replace"))  # base64 without its padding


def _numbers(part: bytes) -> bytes:
    try:
        numbers = _decode_numbers(b"[%b]" % part)
    except ValueError as error:
        raise FormatError(f"the numbers of the body: {error}") from error
    if not numbers:
        raise FormatError("the numbers of the body: one is missing")
    return low_bytes(numbers)
