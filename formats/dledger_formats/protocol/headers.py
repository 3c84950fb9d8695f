"""Headers in forms other than the JSON that Java writes.

The binary form is that of Java's `RocketMQSerializable`:

    int16 code, int8 language, int16 version, int32 opaque, int32 flag, int32 and remark, int32 and
    ext: a run of (int16 and key, int32 and value)

RocketMQ's C++ client writes JSON with ext fields that are numbers, which Java reads as texts.
"""

import struct
from typing import Any, Final

import msgspec

EXT_FIELDS_MAX: Final = 64
"""Ext fields of a binary header. DLedger uses none, and each costs more than its bytes."""
LANGUAGES: Final = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
    "OMS", "RUST",
)  # fmt: skip
"""`LanguageCode` of Java: the binary header carries the position in this list."""

_BINARY_FIXED: Final = struct.Struct(">Hbhii")


def with_texts(header: bytes) -> bytes:
    """Return a JSON header whose ext fields are texts, as Java reads them: whole numbers, true and
    false become texts, and null is left out. Raises ValueError for other kinds of values.
    """
    fields = msgspec.json.decode(header, type=dict[str, Any])
    ext = fields.get("extFields")
    if not isinstance(ext, dict):
        return header  # something else is wrong with it
    fields["extFields"] = {
        key: _as_text(key, value) for key, value in ext.items() if value is not None
    }
    return msgspec.json.encode(fields)


def _as_text(key: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise ValueError(f"the ext field {key[:30]!r} is neither a text nor a whole number")


def read_binary(data: bytes) -> dict[str, Any]:
    """Read a binary header; return the arguments of a `RemotingCommand`. Raises ValueError and
    struct.error.
    """
    code, language, version, opaque, flag = _BINARY_FIXED.unpack_from(data)
    remark, at = _text(data, _BINARY_FIXED.size, 4)
    ext_length = int.from_bytes(_exactly(data, at, 4), "big")
    return {
        "code": code,
        "opaque": opaque,
        "flag": flag,
        "remark": remark or None,
        "ext_fields": _decode_ext(_exactly(data, at + 4, ext_length)) or None,
        "language": LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER",
        "version": version,
    }


def _decode_ext(ext: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    at = count = 0
    while at < len(ext):
        count += 1
        if count > EXT_FIELDS_MAX:
            raise ValueError(f"a header has more than {EXT_FIELDS_MAX} ext fields")
        key, at = _text(ext, at, 2)
        fields[key], at = _text(ext, at, 4)
    return fields


def _text(data: bytes, at: int, length_bytes: int) -> tuple[str, int]:
    """Read a length, of `length_bytes` bytes, and that much UTF-8. Returns the text and its end."""
    length = int.from_bytes(_exactly(data, at, length_bytes), "big")
    at += length_bytes
    return _exactly(data, at, length).decode(), at + length


def _exactly(data: bytes, at: int, length: int) -> bytes:
    if at + length > len(data):
        raise ValueError(f"a binary header of {len(data)} bytes has no {length} bytes at byte {at}")
    return data[at : at + length]
