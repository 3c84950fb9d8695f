"""JSON objects <-> frozen dataclasses, for the formats that programs tell each other over HTTP.

Keys are camelCase in JSON and snake_case here. A reader ignores keys that it does not know, so that
programs may be of different ages, and refuses an object that lacks one.
"""

import dataclasses
import enum
import json
import re
import types
import typing
from typing import Any, TypeVar

T = TypeVar("T")


class FormatError(ValueError):
    """The bytes are not JSON of the expected shape; the message names the key."""


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def _to_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            _camel(item.name): _to_plain(getattr(value, item.name))
            for item in dataclasses.fields(value)
        }
    if isinstance(value, list):
        return [_to_plain(item) for item in value]
    return value


def encode(value: Any) -> bytes:
    """Encode a dataclass, compactly."""
    return json.dumps(_to_plain(value), separators=(",", ":")).encode()


def decode(cls: type[T], raw: bytes) -> T:
    """Decode into `cls`; FormatError when a key is missing or has another type."""
    try:
        plain = json.loads(raw)
    except ValueError as error:
        raise FormatError(f"not JSON: {error}") from error
    decoded = _from_plain(cls, plain, "")
    assert isinstance(decoded, cls)
    return decoded


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
            raise FormatError(f"{where}: {error}") from error
    if kind is int and isinstance(value, bool):
        raise FormatError(f"{where}: {value!r} is not an int")
    if not isinstance(kind, type) or not isinstance(value, kind):
        raise FormatError(f"{where}: {value!r} is not of type {kind}")
    return value


def _object_from_plain(cls: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise FormatError(f"{where or cls.__name__}: an object is expected, not {value!r}")
    hints = typing.get_type_hints(cls)
    arguments = {}
    for item in dataclasses.fields(cls):
        key = _camel(item.name)
        if key not in value:
            raise FormatError(f"{where or cls.__name__}: the key {key} is missing")
        arguments[item.name] = _from_plain(hints[item.name], value[key], f"{where}.{key}")
    return cls(**arguments)
