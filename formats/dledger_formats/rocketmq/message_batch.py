"""The body of a SEND_BATCH_MESSAGE: messages of one topic and queue, end to end.

    4 total size   4 magic 0   4 CRC 0   4 flag
    4 body length, body   2 properties length, properties

Java writes 0 for magic and CRC, and reads neither (`MessageDecoder.encodeMessage`).
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from dledger_formats.json_objects import FormatError
from dledger_formats.rocketmq.properties import PROPERTIES_BYTES_MAX

BATCH_MESSAGES_MAX: Final = 16_384
"""Java has no such limit. The 4 MiB that a batch may have are reached before with any stock client
whose messages have 256 bytes or more.
"""
_HEAD: Final = struct.Struct(">i8xii")
_LENGTH_16: Final = struct.Struct(">h")
MESSAGE_BYTES_MIN: Final = _HEAD.size + _LENGTH_16.size


class BatchMessage(NamedTuple):
    """One message of a batch."""

    flag: int
    body: bytes
    properties: bytes
    """The encoded properties."""


def encode(messages: Iterable[BatchMessage]) -> bytes:
    """Encode a batch. Raises ValueError if the properties of a message are too long."""
    parts: list[bytes] = []
    for flag, body, properties in messages:
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise ValueError(f"a message has properties of {len(properties)} bytes")
        size = MESSAGE_BYTES_MIN + len(body) + len(properties)
        parts += (
            _HEAD.pack(size, flag, len(body)), body, _LENGTH_16.pack(len(properties)), properties,
        )  # fmt: skip
    return b"".join(parts)


def decode(raw: bytes) -> list[BatchMessage]:
    """Read the messages of a batch: one or more. Raises FormatError."""
    messages: list[BatchMessage] = []
    at, end = 0, len(raw)
    while at < end:
        if len(messages) == BATCH_MESSAGES_MAX:
            raise FormatError(f"a batch has more than {BATCH_MESSAGES_MAX} messages")
        if end - at < MESSAGE_BYTES_MIN:
            raise FormatError(f"a batch ends with {end - at} bytes that are no message")
        size, flag, body_bytes = _HEAD.unpack_from(raw, at)
        body_at = at + _HEAD.size
        properties_at = body_at + body_bytes + _LENGTH_16.size
        if body_bytes < 0 or properties_at > end:
            raise FormatError(f"a message of a batch has a body of {body_bytes} bytes")
        (properties_bytes,) = _LENGTH_16.unpack_from(raw, properties_at - _LENGTH_16.size)
        message_end = properties_at + properties_bytes
        if properties_bytes < 0 or message_end != at + size or message_end > end:
            raise FormatError(f"the parts of a message of a batch do not add up to {size} bytes")
        messages.append(
            BatchMessage(flag, raw[body_at : body_at + body_bytes], raw[properties_at:message_end])
        )
        at = message_end
    if not messages:
        raise FormatError("a batch has no message")
    return messages
