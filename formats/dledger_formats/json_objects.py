"""Strict JSON, and the conversion between JSON objects and frozen dataclasses.

Keys are camelCase in JSON and snake_case here. Programs may have different versions: a reader
ignores unknown keys, and uses a field's default if the key is missing. An object that lacks a key
without a default is refused.

Ambiguous JSON is refused, although Python's own reader accepts most of it: duplicate keys, NaN and
Infinity, numbers beyond a double's range, text that UTF-8 cannot encode, and more than DEPTH_MAX
nested brackets. An integer of a dataclass has at most 64 bits: no index, size or time has more, and
a metric or a field of Kubernetes cannot hold more.
"""

import dataclasses
import enum
import functools
import json
import math
import re
import types
import typing
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")

DEPTH_MAX: Final = 32
VALUE_SHOWN_MAX: Final = 100
"""Length to which a wrong value is cut in a message."""
INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1
_STRING_OR_BRACKET: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{\]}]', re.DOTALL)


class FormatError(ValueError):
    """The bytes are not JSON of the expected shape. The message names the key."""


class _Field(NamedTuple):
    """A field of a dataclass, and its key in JSON."""

    name: str
    key: str
    kind: Any
    required: bool


@functools.cache
def _fields(cls: type) -> tuple[_Field, ...]:
    """Return the fields of a dataclass; resolving its types takes longer than reading an object."""
    hints = typing.get_type_hints(cls)
    return tuple(
        _Field(
            name=item.name,
            key=_camel(item.name),
            kind=hints[item.name],
            required=item.default is item.default_factory is dataclasses.MISSING,
        )
        for item in dataclasses.fields(cls)
    )


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def _to_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.key: _to_plain(getattr(value, each.name)) for each in _fields(type(value))}
    if isinstance(value, list):
        return [_to_plain(item) for item in value]
    return value


def encode(value: Any) -> bytes:
    """Encode a dataclass without white space."""
    return json.dumps(_to_plain(value), separators=(",", ":")).encode()


def decode(cls: type[T], raw: bytes) -> T:
    """Decode into `cls`. Raises FormatError if a key is missing or has another type, or if an
    integer has more than 64 bits.
    """
    decoded = _from_plain(cls, parse(raw), "")
    assert isinstance(decoded, cls)
    return decoded


def parse(raw: bytes) -> Any:
    """Read JSON of any shape strictly. Raises FormatError with the reason."""
    if raw.count(b"[") + raw.count(b"{") > DEPTH_MAX:
        _refuse_depth(raw)
    try:
        text = raw.decode()
        if "\\u" in text:
            # An escape may be half of a surrogate pair, which UTF-8 cannot encode.
            return _checked_text(_STRICT.decode(text))
        return _STRICT.decode(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {str(error)[:200]}") from error


def _refuse_depth(raw: bytes) -> None:
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(raw):
        if found[0] in b"[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise FormatError(f"not JSON: more than {DEPTH_MAX} nested brackets")
        elif found[0] in b"]}":
            depth -= 1


def _object_without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        for key, _ in reversed(pairs):
            if found.pop(key, pairs) is pairs:
                raise ValueError(f"the key {key[:50]!r} occurs twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


_STRICT: Final = json.JSONDecoder(
    object_pairs_hook=_object_without_twins,
    parse_float=_finite,
    parse_constant=_refuse_constant,
)


def _checked_text(value: Any) -> Any:
    json.dumps(value, ensure_ascii=False).encode()
    return value


def _from_plain(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _object_from_plain(typing.cast("type", kind), value, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        return _from_plain(next(a for a in arguments if a is not type(None)), value, where)
    if origin is list and isinstance(value, list):
        return [_from_plain(arguments[0], item, f"{where}[]") for item in value]
    if origin is dict and isinstance(value, dict):
        return {str(key): _from_plain(arguments[1], item, where) for key, item in value.items()}
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        try:
            return kind(value)
        except ValueError as error:
            raise FormatError(f"{where}: {_shown(value)} is not a {kind.__name__}") from error
    if kind is int:
        return _integer(value, where)
    if not isinstance(kind, type) or not isinstance(value, kind):
        raise FormatError(f"{where}: {_shown(value)} is not of type {kind}")
    return value


def _shown(value: Any) -> str:
    """Return a value as an error quotes it, which may come from anyone."""
    text = repr(value)
    return text if len(text) <= VALUE_SHOWN_MAX else f"{text[:VALUE_SHOWN_MAX]}…"


def _integer(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise FormatError(f"{where}: {_shown(value)} is not an int")
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise FormatError(f"{where}: the integer does not fit 64 bits")
    return value


def _object_from_plain(cls: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise FormatError(f"{where or cls.__name__}: {_shown(value)} is not an object")
    arguments = {}
    for name, key, kind, required in _fields(cls):
        if key in value:
            arguments[name] = _from_plain(kind, value[key], f"{where}.{key}")
        elif required:
            raise FormatError(f"{where or cls.__name__}: the key {key} is missing")
    return cls(**arguments)
