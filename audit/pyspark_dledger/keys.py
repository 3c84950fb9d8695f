"""Decoders: what an entry's body says about its key. Keys are compared by their bytes.

    register          8 bytes, as DLedger's example writes them: the first 4 are the key
    kv                KEY=VALUE: the bytes before the first `=`; an empty VALUE deletes the key
    json:FIELD        a JSON object: its text or integer FIELD; `"deleted": true` deletes the key
    rocketmq          a message: topic, queue and property KEYS; an empty body deletes the key
    module:function   a Python function: bytes to None, to a key, or to (key, deletes it or not)

A body that a decoder cannot read, or that has no key, belongs to no key: such an entry stays.
"""

import importlib
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from dledger_formats import json_objects
from dledger_formats.json_objects import FormatError
from dledger_formats.protocol import register as register_format

DELETED_FIELD: Final = "deleted"
NAMES: Final = "register, kv, json:FIELD, rocketmq or module:function"


class DecoderError(Exception):
    """A decoder does not exist, failed, or returned something other than a key."""


class Key(NamedTuple):
    """The key of one entry."""

    key: bytes
    is_tombstone: bool
    """Whether the entry deletes its key."""


Decoder: TypeAlias = Callable[[bytes], Key | None]


def decoder(name: str) -> Decoder:
    """Return the decoder of this name. Raises DecoderError if there is none."""
    kind, _, rest = name.partition(":")
    if name == "register":
        return _register
    if name == "kv":
        return _key_value
    if name == "rocketmq":
        return _rocketmq()
    if kind == "json" and rest:
        return partial(_json, rest)
    if rest.isidentifier() and all(part.isidentifier() for part in kind.split(".")):
        return _custom(name, kind, rest)
    raise DecoderError(f"there is no decoder {name!r}; it must be {NAMES}")


def _register(body: bytes) -> Key | None:
    """Decode an entry of the register; other sizes set nothing, see docs/state-machine.md."""
    return Key(body[:4], False) if len(body) == register_format.SET.size else None


def _key_value(body: bytes) -> Key | None:
    key, separator, value = body.partition(b"=")
    return Key(key, not value) if separator else None


def _json(field: str, body: bytes) -> Key | None:
    """Decode a JSON object; a key's first byte distinguishes a text from a number."""
    try:
        plain = json_objects.parse(body)
    except FormatError:
        return None
    if not isinstance(plain, dict):
        return None
    value, is_tombstone = plain.get(field), plain.get(DELETED_FIELD) is True
    if isinstance(value, str):
        return Key(b"s" + value.encode(), is_tombstone)
    if isinstance(value, int) and not isinstance(value, bool):
        return Key(b"i%d" % value, is_tombstone)
    return None


def _rocketmq() -> Decoder:
    from dledger_formats.rocketmq import message_record, properties, topic_names

    place = struct.Struct(">i")

    def decode(body: bytes) -> Key | None:
        try:
            record = message_record.decode(body)
        except message_record.MessageRecordError:
            return None
        keys = properties.find(record.properties, properties.KEYS.encode())
        if keys is None or topic_names.is_system(record.topic):
            return None  # the broker counts these messages, or delivers them later
        topic = record.topic.encode()
        return Key(place.pack(len(topic)) + topic + place.pack(record.queue_id) + keys,
                   not record.body)  # fmt: skip

    return decode


def _custom(name: str, module: str, function: str) -> Decoder:
    try:
        given = getattr(importlib.import_module(module), function)
    except (Exception, SystemExit) as error:  # a module may raise anything when it is imported
        raise DecoderError(f"the decoder {name} cannot be loaded: {error!r}") from error
    if not callable(given):
        raise DecoderError(f"the decoder {name} cannot be loaded: {function} is no function")

    def decode(body: bytes) -> Key | None:
        try:
            found = given(body)
        except Exception as error:
            raise DecoderError(f"the decoder {name} failed: {error!r}; correct it") from error
        return _checked(name, found)

    return decode


def _checked(name: str, found: Any) -> Key | None:
    if found is None:
        return None
    match found:
        case bytes():
            return Key(found, False)
        case (bytes() as key, bool() as is_tombstone):
            return Key(key, is_tombstone)
    raise DecoderError(
        f"the decoder {name} returned {str(found)[:80]!r}; it must return None, a key of bytes, or "
        "a tuple of a key and a bool"
    )
