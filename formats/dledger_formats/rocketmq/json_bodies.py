"""JSON bodies of RocketMQ: strict JSON out, and what Java's JSON library writes in.

That library (fastjson) does not quote keys that are numbers: `{0:"127.0.0.1:10911"}`, and takes
keys without quotes from others. So a reader here accepts a key without quotes, made of letters,
digits and `_ $ -`. In everything else it is as strict as `json_objects.parse`. We always
write quotes, which Java reads. A heartbeat may have 256 KiB, for which `json_objects.parse` would
take tens of ms; so what is done for each byte or key here is done in C.

A reader ignores unknown keys. Keys that some releases do not have are None here if they are
missing, and are then not written.
"""

import itertools
import re
from typing import Any, ClassVar, Final, Self, final

import msgspec

from dledger_formats import json_objects
from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.frames import FRAME_BYTES_MAX

REQUEST_BYTES_MAX: Final = 256 * 1024
"""The longest JSON of a request that a broker reads: a heartbeat with 1,000 subscriptions."""
BRACKETS_MAX: Final = 8192
"""Opening brackets of such a body: each costs more time than all other bytes do."""
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BARE_KEY: Final = re.compile(rb"([{,]\s*+)([A-Za-z0-9_$-]++)(?=\s*+:)")
_CUT: Final = b"\0"
"""Where a string was cut out: no JSON has this byte outside of strings."""


class JsonBody(
    msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True, gc=False
):
    """An object with the keys of one kind of body."""

    BYTES_MAX: ClassVar[int] = REQUEST_BYTES_MAX
    BRACKETS_MAX: ClassVar[int] = BRACKETS_MAX

    @final
    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Read a body. Raises FormatError, which names the key that is missing or wrong."""
        return cls.from_plain(cls.parse(raw))

    @final
    @classmethod
    def parse(cls, raw: bytes) -> Any:
        """Read the JSON of a body whose size is within its bounds. Raises FormatError."""
        if len(raw) > cls.BYTES_MAX:
            raise FormatError(f"JSON of {len(raw)} bytes; at most {cls.BYTES_MAX} are allowed")
        if raw.count(b"[") + raw.count(b"{") > cls.BRACKETS_MAX:
            raise FormatError(f"JSON may have at most {cls.BRACKETS_MAX} opening brackets")
        return parse(raw)

    @final
    @classmethod
    def from_plain(cls, plain: object) -> Self:
        """Read a body from its JSON, parsed. Raises FormatError."""
        try:
            return msgspec.convert(plain, cls)
        except (msgspec.ValidationError, RecursionError) as error:
            raise FormatError(f"{cls.__name__}: {error}") from error

    @final
    def to_json(self) -> bytes:
        """Encode as strict JSON."""
        return _ENCODER.encode(self)


class AnswerBody(JsonBody, kw_only=True, frozen=True):
    """The body of an answer. It may have as many topics or groups as a frame can hold."""

    BYTES_MAX: ClassVar[int] = FRAME_BYTES_MAX
    BRACKETS_MAX: ClassVar[int] = FRAME_BYTES_MAX


def parse(raw: bytes) -> Any:
    """Read JSON whose keys may lack their quotes. Raises FormatError. Takes linear time."""
    bare = _STRING.sub(_CUT, raw)
    quoted = _BARE_KEY.sub(rb'\1"\2"', bare)
    if quoted != bare:
        if _CUT in raw:
            raise FormatError("not JSON: a byte 0 stands between its parts")
        strings = [*_STRING.findall(raw), b""]
        pieces = quoted.split(_CUT)
        raw = b"".join(itertools.chain.from_iterable(zip(pieces, strings, strict=True)))
    try:
        plain = msgspec.json.decode(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {str(error)[:200]}") from error
    if _keys_of(plain) != bare.count(b":"):
        raise FormatError("not JSON: a key occurs twice")
    return plain


def _keys_of(plain: object) -> int:
    """Count the keys of all objects. Raises FormatError if they are nested too deeply."""
    count, level = 0, [plain]
    for _ in range(json_objects.DEPTH_MAX + 1):
        objects = [each for each in level if type(each) is dict]
        lists = [each for each in level if type(each) is list]
        if not (objects or lists):
            return count
        count += sum(map(len, objects))
        level = [inner for each in objects for inner in each.values()]
        level += [inner for each in lists for inner in each]
    raise FormatError(f"not JSON: more than {json_objects.DEPTH_MAX} nested brackets")


def zero() -> int:
    """Return the default of a number that is always written."""
    return 0


def no() -> bool:
    """Return the default of a boolean that is always written."""
    return False


def no_items() -> list[Any]:
    """Return the default of a list that is always written."""
    return []


def no_entries() -> dict[str, Any]:
    """Return the default of an object that is always written."""
    return {}


def yes() -> bool:
    """Return the default of a boolean that is always written."""
    return True


_ENCODER: Final = msgspec.json.Encoder()
