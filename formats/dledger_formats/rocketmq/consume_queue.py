"""Units of a consume queue: where the message with a queue offset is in the log.

    consumequeue/<topic>/<queue id>/<offset of the file's first byte, 20 digits>

    unit (20 bytes): int64 physical offset, int32 size of the record, int64 tags code

Unit n of a queue is at byte 20 n of its files, taken end to end. In a DLedger group the physical
offset is the position of the log entry + 48. The tags code is Java's hash of the property TAGS, 0
without one; for a message that waits in SCHEDULE_TOPIC it is the time of its delivery in ms
(`ConsumeQueue`, `CommitLog.checkMessageAndReturnSize`).
"""

import struct
import sys
from functools import lru_cache
from operator import mul
from typing import Final, NamedTuple

from dledger_formats.rocketmq import delay_levels, properties, topic_names
from dledger_formats.rocketmq.codes import MessageSysFlag
from dledger_formats.rocketmq.message_record import MessageRecord

UNIT: Final = struct.Struct(">qiq")
UNIT_BYTES: Final = 20
FILE_UNITS: Final = 300_000
FILE_BYTES: Final = FILE_UNITS * UNIT_BYTES
"""Java's size of a file."""
FOLDER: Final = "consumequeue"
_TAGS: Final = properties.TAGS.encode()
_DELAY: Final = properties.DELAY.encode()
_KINDS_OF_TRANSACTION: Final = int(MessageSysFlag.TRANSACTION_ROLLBACK)
_UNQUEUED: Final = (
    int(MessageSysFlag.TRANSACTION_PREPARED), int(MessageSysFlag.TRANSACTION_ROLLBACK),
)  # fmt: skip
_CACHED_BYTES_MAX: Final = 64

_UTF_16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
_HASHED_UNITS: Final = 256
_POWERS: Final = [pow(31, exponent, 1 << 32) for exponent in reversed(range(_HASHED_UNITS))]
"""Java's hash multiplies each unit of a block by one of these powers of 31."""

assert UNIT.size == UNIT_BYTES


class Unit(NamedTuple):
    """The place of a message, and the code by which it is filtered."""

    physical_offset: int
    size: int
    tags_code: int


def is_queued(record: MessageRecord) -> bool:
    """Return whether a message has a place in its consume queue: Java leaves out prepared and
    rolled-back transactions, whose queue offset is 0.
    """
    return record.sys_flag & _KINDS_OF_TRANSACTION not in _UNQUEUED


def tags_code(record: MessageRecord) -> int:
    """Return the tags code of a message."""
    encoded = record.properties
    if record.topic == topic_names.SCHEDULE_TOPIC:
        level = properties.find(encoded, _DELAY) or b""
        if level.isdigit() and len(level) <= 9 and int(level) > 0:
            return delay_levels.delivery_timestamp_ms(int(level), record.store_timestamp)
    return code_of_tags(encoded)


def code_of_tags(encoded: bytes) -> int:
    """Return the hash of the tags among encoded properties; 0 without tags."""
    if b"TAGS" not in encoded:
        return 0
    tags = properties.find(encoded, _TAGS)
    if tags is None:
        return 0
    return _cached_hash(tags) if len(tags) <= _CACHED_BYTES_MAX else java_hash(tags)


def java_hash(encoded: bytes) -> int:
    """Return Java's `String.hashCode` of a text in UTF-8, as a signed number of 32 bits.

    A text of 30,000 bytes takes about a ms.
    """
    units = memoryview(encoded.decode(errors="replace").encode(_UTF_16)).cast("H")
    value = 0
    for at in range(0, len(units), _HASHED_UNITS):
        block = units[at : at + _HASHED_UNITS]
        powers = _POWERS[-len(block) :]
        value = (31 * powers[0] * value + sum(map(mul, block, powers))) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


_cached_hash = lru_cache(maxsize=4096)(java_hash)
