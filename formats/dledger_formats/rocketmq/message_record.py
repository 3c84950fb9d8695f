"""A stored message. In the log, in the answer to a pull and in replication it has the same bytes.

    size   field                       offset (IPv4)
       4   total size                   0
       4   magic: V1 or V2              4
       4   CRC-32 of the body, 31 bits  8
       4   queue id                    12
       4   flag, the user's            16
       8   queue offset                20   stamped by the leader
       8   physical offset             28   stamped: position of the log entry + 48
       4   sysFlag                     36
       8   born timestamp, ms          40
    8/20   born host: IP, int32 port   48
       8   store timestamp, ms         56   stamped
    8/20   store host                  64
       4   reconsume times             72
       8   prepared transaction offset 76
     4+n   body                        84
   1/2+n   topic: 1 byte of length in V1, 2 in V2
     2+n   properties, see `properties`

Bits of sysFlag say whether a host has 8 or 20 bytes (`MessageDecoder` of Java). In a DLedger group
one message is the body of one log entry.
"""

import struct
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final, TypeAlias

import msgspec

from dledger_formats.log import disk
from dledger_formats.log.checksum import crc32
from dledger_formats.rocketmq.codes import MessageSysFlag
from dledger_formats.rocketmq.properties import PROPERTIES_BYTES_MAX

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
RECORD_BYTES_MAX: Final = disk.BODY_SIZE_MAX
"""A record must fit one entry of the log."""
TOPIC_BYTES_MAX_V1: Final = 127
TOPIC_BYTES_MAX_V2: Final = 32767
_PREFIX: Final = struct.Struct(">II")
_SYS_FLAG_AT: Final = 36
# Plain numbers: operations on an IntFlag take microseconds.
_BORN_HOST_IPV6: Final = int(MessageSysFlag.BORN_HOST_IPV6)
_STORE_HOST_IPV6: Final = int(MessageSysFlag.STORE_HOST_IPV6)
_HOST_FLAGS: Final = _BORN_HOST_IPV6 | _STORE_HOST_IPV6
_HOST_BYTES: Final = (8, 20)
IPV6_EXTRA_BYTES: Final = _HOST_BYTES[1] - _HOST_BYTES[0]
"""Bytes by which a host of IPv6 is longer than one of IPv4."""
# The part before the body, by the two bits of sysFlag that say how long the hosts are.
_FIXED: Final = {
    flags: struct.Struct(
        f">IIIiiqqiq{_HOST_BYTES[flags & _BORN_HOST_IPV6 != 0]}sq"
        f"{_HOST_BYTES[flags & _STORE_HOST_IPV6 != 0]}siqi"
    )
    for flags in (0, 16, 32, 48)
}
_LENGTH_16: Final = struct.Struct(">h")
_QUEUE_ID: Final = struct.Struct(">i")
_QUEUE_ID_AT: Final = 12
_OFFSETS: Final = struct.Struct(">qq")
_OFFSETS_AT: Final = 20
_STORE_TIMESTAMP: Final = struct.Struct(">q")
_STORE_TIMESTAMP_AT: Final = 56

assert _FIXED[0].size == 88
assert set(_FIXED) == {flags & _HOST_FLAGS for flags in range(64)}


class MessageRecordError(ValueError):
    """The bytes are not a message record.

    `reason` is one word for counters: short, size, magic, body, topic, properties or crc.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class MessageRecord(msgspec.Struct, frozen=True, gc=False):
    """A message with everything that is stored. Its size and the CRC of its body follow from it."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    properties: bytes = b""
    """The encoded properties."""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = bytes(8)
    """IP and port as `pack_host` returns them; the bits of `sys_flag` must match the length."""
    store_timestamp: int = 0
    store_host: bytes = bytes(8)
    reconsume_times: int = 0
    prepared_offset: int = 0
    magic: int = MAGIC_V1


def pack_host(address: str, port: int) -> bytes:
    """Return a host as it is stored: 8 bytes for IPv4, 20 for IPv6. Raises ValueError."""
    return ip_address(address).packed + port.to_bytes(4, "big")


def host_text(host: bytes) -> str:
    """Return a stored host as readable text: `10.0.0.1:10911` or `[::1]:10911`."""
    address, port = ip_address(host[:-4]), int.from_bytes(host[-4:], "big")
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"


def encode(record: MessageRecord) -> bytearray:
    """Encode a record. Raises MessageRecordError if a part is too long or a host is of the wrong
    length.
    """
    body, properties, topic = record.body, record.properties, record.topic.encode()
    topic_bytes, sys_flag = len(topic), record.sys_flag
    fixed = _FIXED[sys_flag & _HOST_FLAGS]
    size = fixed.size + len(body) + 3 + topic_bytes + len(properties)
    topic_length = b"%c" % topic_bytes if topic_bytes <= TOPIC_BYTES_MAX_V1 else b""
    if record.magic == MAGIC_V2 and topic_bytes <= TOPIC_BYTES_MAX_V2:
        size += 1
        topic_length = _LENGTH_16.pack(topic_bytes)
    if not topic_length:
        raise MessageRecordError("topic", f"a topic of {topic_bytes} bytes")
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise MessageRecordError("properties", f"properties of {len(properties)} bytes")
    if size > RECORD_BYTES_MAX:
        raise MessageRecordError("size", f"{size} bytes; at most {RECORD_BYTES_MAX} are allowed")
    if len(record.born_host) + len(record.store_host) != fixed.size - 72:
        raise MessageRecordError("size", f"hosts do not match the flags {sys_flag:#x}")
    try:
        head = fixed.pack(
            size, record.magic, crc32(body) & 0x7FFFFFFF, record.queue_id, record.flag,
            record.queue_offset, record.physical_offset, sys_flag, record.born_timestamp,
            record.born_host, record.store_timestamp, record.store_host, record.reconsume_times,
            record.prepared_offset, len(body),
        )  # fmt: skip
    except struct.error as error:
        raise MessageRecordError("size", f"a number does not fit its field: {error}") from error
    return bytearray().join(
        (head, body, topic_length, topic, _LENGTH_16.pack(len(properties)), properties)
    )


def stamp(
    record: bytearray, *, queue_offset: int, physical_offset: int, store_timestamp: int
) -> None:
    """Write what only a leader knows, into an encoded record. The CRC does not cover it."""
    _OFFSETS.pack_into(record, _OFFSETS_AT, queue_offset, physical_offset)
    long_host = record[_SYS_FLAG_AT + 3] & _BORN_HOST_IPV6
    at = _STORE_TIMESTAMP_AT + (12 if long_host else 0)
    _STORE_TIMESTAMP.pack_into(record, at, store_timestamp)


def move(record: bytearray, queue_id: int) -> None:
    """Write another queue into an encoded record. The CRC does not cover it."""
    _QUEUE_ID.pack_into(record, _QUEUE_ID_AT, queue_id)


def decode(source: Buffer, *, check_crc: bool = True) -> MessageRecord:
    """Decode exactly one record. Raises MessageRecordError."""
    if len(source) < _FIXED[0].size:
        raise MessageRecordError("short", f"{len(source)} bytes cannot be a message")
    size, magic = _PREFIX.unpack_from(source)
    if size != len(source):
        raise MessageRecordError("size", f"a message of {size} bytes, where {len(source)} are")
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise MessageRecordError("magic", f"unknown magic {magic:#x}")
    fixed = _FIXED[source[_SYS_FLAG_AT + 3] & _HOST_FLAGS]
    body_at = fixed.size
    if size < body_at:
        raise MessageRecordError("short", f"{size} bytes cannot have such hosts")
    (
        _, _, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp,
        born_host, store_timestamp, store_host, reconsume_times, prepared_offset, body_bytes,
    ) = fixed.unpack_from(source)  # fmt: skip
    topic_at = body_at + body_bytes
    # Both lengths after the body must lie within the record.
    length_bytes = 1 if magic == MAGIC_V1 else 2
    if body_bytes < 0 or topic_at + length_bytes + 2 > size:
        raise MessageRecordError("body", f"{body_bytes} bytes in a message of {size}")
    topic_bytes = int.from_bytes(source[topic_at : topic_at + length_bytes], "big")
    topic_at += length_bytes
    properties_at = topic_at + topic_bytes + 2
    if topic_bytes >> (8 * length_bytes - 1) or properties_at > size:
        raise MessageRecordError("topic", f"{topic_bytes} bytes in a message of {size}")
    (properties_bytes,) = _LENGTH_16.unpack_from(source, properties_at - 2)
    if properties_at + properties_bytes != size:
        raise MessageRecordError(
            "properties", f"{properties_bytes} bytes, where {size - properties_at} are"
        )
    body = bytes(source[body_at : body_at + body_bytes])
    if check_crc and crc32(body) & 0x7FFFFFFF != body_crc:
        raise MessageRecordError("crc", "the body does not match its checksum")
    try:
        topic = str(source[topic_at : topic_at + topic_bytes], "utf-8")
    except UnicodeDecodeError as error:
        raise MessageRecordError("topic", str(error)) from error
    return MessageRecord(
        topic, queue_id, queue_offset, physical_offset, body, bytes(source[properties_at:]),
        flag, sys_flag, born_timestamp, born_host, store_timestamp, store_host, reconsume_times,
        prepared_offset, magic,
    )  # fmt: skip


def divide(source: Buffer) -> Iterator[memoryview]:
    """Yield each of the records that lie end to end, as in the answer to a pull.

    Raises MessageRecordError if the bytes do not end with a record's end.
    """
    view, at = memoryview(source), 0
    while at < len(view):
        size = int.from_bytes(view[at : at + 4], "big")
        if size < _FIXED[0].size or at + size > len(view):
            raise MessageRecordError(
                "size", f"a message of {size} bytes, {len(view) - at} are left"
            )
        yield view[at : at + size]
        at += size
