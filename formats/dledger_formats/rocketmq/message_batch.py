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

BATCH_MESSAGES_MAX: Final = 8192
"""Java has no such limit. With messages of 512 bytes or more, a stock client first reaches the 4
MiB that a batch may have. The limit is below the number of entries that may wait for a quorum,
10,000 by default: a batch above that number would always be refused as overload.
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


def count(raw: bytes, enough: int | None = None) -> int:
    """Count the messages of a batch by their sizes alone, up to `enough` of them.

    Raises FormatError if a size is wrong. `decode` may still refuse the batch.
    """
    found, at, end = 0, 0, len(raw)
    if not raw:
        raise FormatError("a batch has no message")
    while at < end and found != enough:
        size = int.from_bytes(raw[at : at + 4], "big")
        if size < MESSAGE_BYTES_MIN:
            raise FormatError(f"a message of a batch has {size} bytes")
        if found == BATCH_MESSAGES_MAX:
            raise FormatError(f"a batch has more than {BATCH_MESSAGES_MAX} messages")
        at += size
        found += 1
    if at != end and (found != enough or at > end):
        raise FormatError(f"the sizes of a batch's messages do not add up to {end} bytes")
    return found


def decode(raw: bytes) -> list[BatchMessage]:
    """Read the messages of a batch: one or more. Raises FormatError.

    Wrong sizes are refused before a message is read, which takes longer.
    """
    messages: list[BatchMessage] = []
    count(raw)
    at, end = 0, len(raw)
    while at < end:
        size, flag, body_bytes = _HEAD.unpack_from(raw, at)
        body_at = at + _HEAD.size
        properties_at = body_at + body_bytes + _LENGTH_16.size
        if body_bytes < 0 or properties_at > end:
            raise FormatError(f"a message of a batch has a body of {body_bytes} bytes")
        (properties_bytes,) = _LENGTH_16.unpack_from(raw, properties_at - _LENGTH_16.size)
        message_end = properties_at + properties_bytes
        if properties_bytes < 0 or message_end != at + size:
            raise FormatError(f"the parts of a message of a batch do not add up to {size} bytes")
        messages.append(
            BatchMessage(flag, raw[body_at : body_at + body_bytes], raw[properties_at:message_end])
        )
        at = message_end
    return messages
