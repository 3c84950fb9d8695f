"""JSON bodies as bytes: strict and lenient decoding, and the two forms of `byte[]`.

A member decodes requests that anyone may have sent. Ambiguous JSON is refused there
(`decode_strictly`), so that no two readers understand one request differently. A client decodes the
responses of the server that it asked, once and leniently.

Java DLedger 0.4.3 writes and reads `byte[]` only as an array of signed numbers; every other version
reads that and base64. A reader here takes both, and base64 without its padding.
"""

import base64
import re
import sys
from array import array
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec

from dledger_formats import json_objects
from dledger_formats.json_objects import FormatError

JSON_BYTES_MAX: Final = 64 * 1024
"""The longest JSON of a request. A longer one may only have a long body (`long_body`)."""
BRACKETS_MAX: Final = 32
"""Opening brackets of a request. Each costs more time than all other bytes do; none needs ten."""

T = TypeVar("T")
StructT = TypeVar("StructT", bound=msgspec.Struct)

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]

# The bytes in either form. Checking them by type, instead of walking arbitrary JSON, keeps the cost
# of a hostile body proportional to its length.
LooseBytes: TypeAlias = str | list[Annotated[int, msgspec.Meta(ge=-128, le=255)]]

_BODY_BEGIN: Final = re.compile(rb'"body"\s*:\s*(["[])[^]"]')


def decode_strictly(decode: Callable[[bytes], T], raw: bytes) -> T:
    """Decode a request's JSON with `decode`; first refuse everything that `json_objects.parse`
    refuses, and what would take long to parse.

    Raises FormatError.
    """
    if len(raw) > JSON_BYTES_MAX:
        raise FormatError(f"JSON of {len(raw)} bytes; at most {JSON_BYTES_MAX} are allowed")
    if raw.count(b"[") + raw.count(b"{") > BRACKETS_MAX:
        raise FormatError(f"a request may have at most {BRACKETS_MAX} opening brackets")
    json_objects.parse(raw)
    return decode(raw)


def decode_leniently(cls: type[StructT], raw: bytes) -> StructT:
    """Decode a JSON object; keys that `cls` does not have are ignored.

    Raises FormatError, which names the class, if a key is missing or has another type.
    """
    try:
        decoder: msgspec.json.Decoder[StructT] = _decoder(cls)
        return decoder.decode(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{cls.__name__.removeprefix('_Loose')}: {error}") from error


@cache
def _decoder(cls: type[StructT]) -> msgspec.json.Decoder[StructT]:
    return msgspec.json.Decoder(cls)


def to_bytes(loose: LooseBytes) -> bytes:
    """Read bytes in either form. Raises FormatError."""
    if isinstance(loose, list):
        return low_bytes(loose)
    try:
        return base64.b64decode(loose + "=" * (-len(loose) % 4), validate=True)
    except ValueError as error:
        raise FormatError(f"not base64: {error}") from error


def low_bytes(numbers: list[int]) -> bytes:
    """Return the bytes whose values are these numbers, signed or not."""
    return array("h", numbers).tobytes()[sys.byteorder == "big" :: 2]


def with_numbers(value: Any) -> Any:
    """Replace all bytes in plain JSON values by lists of signed numbers."""
    if isinstance(value, bytes):
        return list(memoryview(value).cast("b"))
    if isinstance(value, dict):
        return {key: with_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_numbers(item) for item in value]
    return value


def reads_numbers(append: bytes) -> bool | None:
    """Return whether the sender of this APPEND reads bytes only as numbers; None if the body is
    empty and so does not show the form.
    """
    # A quote within a JSON string is escaped, so this must be a key and the start of its value.
    begin = _BODY_BEGIN.search(append)
    return begin[1] == b"[" if begin else None
