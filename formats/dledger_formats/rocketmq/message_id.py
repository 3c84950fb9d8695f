"""The id under which a broker finds a stored message: its store host and its physical offset.

    7F000001 000078D3 0000000000000030      upper-case hex: IP of 4 or 16 bytes, port, offset

Java calls it `offsetMsgId`. The client's own id of a message is its property UNIQ_KEY.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from dledger_formats.json_objects import FormatError

_OFFSET: Final = struct.Struct(">q")
_LENGTHS: Final = (32, 56)


class MessageId(NamedTuple):
    """Where a message is stored."""

    store_host: bytes
    """IP and port, as `message_record.pack_host` returns them."""
    physical_offset: int

    def __str__(self) -> str:
        return (self.store_host + _OFFSET.pack(self.physical_offset)).hex().upper()


def texts(store_host: bytes, physical_offsets: Iterable[int]) -> list[str]:
    """Return the ids of messages of one store, as `str` returns each."""
    host = store_host.hex().upper()
    return [f"{host}{offset:016X}" for offset in physical_offsets]


def parse(text: str) -> MessageId:
    """Read an id. Raises FormatError."""
    try:
        raw = bytes.fromhex(text) if len(text) in _LENGTHS else b""
    except ValueError:
        raw = b""
    if 2 * len(raw) != len(text) or not raw:
        raise FormatError(f"{text[:60]!r} is not a message id: 32 or 56 hex digits are expected")
    return MessageId(raw[:-8], _OFFSET.unpack(raw[-8:])[0])
