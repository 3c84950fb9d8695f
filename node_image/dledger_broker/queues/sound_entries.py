"""Entries that match their units, as nearly all of them do, checked in a few steps.

Entries that differ are left to `MessageReader`, which says what is wrong. Records of other forms,
such as those with long topics, differ, too.
"""

import struct
from typing import Final

from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.entry_runs import EntryRuns
from dledger_formats.log.checksum import crc32
from dledger_formats.log.disk import ENTRY_HEADER_SIZE, ENTRY_MAGICS
from dledger_formats.rocketmq.codes import MessageSysFlag
from dledger_formats.rocketmq.consume_queue import code_of_tags
from dledger_formats.rocketmq.message_record import IPV6_EXTRA_BYTES, MAGIC_V1, TOPIC_BYTES_MAX_V1
from dledger_formats.rocketmq.topic_names import SCHEDULE_TOPIC

# An entry's magic, size, index, pos, body_crc and body_size; then its record's size, magic, queue
# id, queue offset, physical offset, sysFlag and, after addresses of IPv4, the size of the body.
_HEAD: Final = struct.Struct(">iiq8xq8xIiII4xi4xqqi44xi")
_RECORD_HEAD_BYTES: Final = 88
_BORN: Final = int(MessageSysFlag.BORN_HOST_IPV6)
_STORE: Final = int(MessageSysFlag.STORE_HOST_IPV6)
_IPV6: Final = _BORN | _STORE
# Where the body of a record with addresses of IPv6 begins, by those two bits of its sysFlag.
_BODY_AT: Final = {
    flags: _RECORD_HEAD_BYTES + IPV6_EXTRA_BYTES * flags.bit_count()
    for flags in (_BORN, _STORE, _BORN | _STORE)
}
_LENGTH_BYTES: Final = 2
_PROPERTIES_BYTES_MAX: Final = 1024
"""Longer properties are looked at closely: finding and hashing long tags takes milliseconds."""

assert _HEAD.size == ENTRY_HEADER_SIZE + _RECORD_HEAD_BYTES


def sound_records(
    runs: EntryRuns,
    queue: QueueId,
    offset: int,
    created_index: int,
    bytes_max: int,
    *,
    with_tags: bool = False,
) -> list[bytes]:
    """Return the records of the first units of a queue, up to one that needs a closer look.

    The first unit has this offset, and the topic was created by the entry with this index. Together
    they have at most `bytes_max` bytes. `with_tags` compares the tags, too. Blocks as the runs do.
    """
    encoded, queue_id = queue.topic.encode(errors="replace"), queue.queue_id
    if len(encoded) > TOPIC_BYTES_MAX_V1 or (with_tags and queue.topic == SCHEDULE_TOPIC):
        return []
    topic = b"%c%b" % (len(encoded), encoded)
    unpack, physical_place = _HEAD.unpack_from, ENTRY_HEADER_SIZE
    records: list[bytes] = []
    source: bytes | memoryview = b""
    source_pos = source_bytes = 0
    for number, (place, size, tags_code) in enumerate(runs.units):
        bytes_max -= size
        if size < _RECORD_HEAD_BYTES or bytes_max < 0:
            break
        begin = place - physical_place - source_pos
        end = begin + physical_place + size
        if begin < 0 or end > source_bytes:
            try:
                source, begin, end = runs.entry(number)
            except LookupError:
                break
            source_pos, source_bytes = place - physical_place - begin, len(source)
            if end - begin < physical_place + size:
                break
        (
            magic, entry_bytes, index, pos, body_crc, body_bytes, record_bytes, record_magic,
            found_queue_id, found_offset, found_place, sys_flag, content_bytes,
        ) = unpack(source, begin)  # fmt: skip
        record = bytes(source[begin + physical_place : end])
        body_at = _RECORD_HEAD_BYTES
        if sys_flag & _IPV6:
            body_at = _BODY_AT[sys_flag & _IPV6]
            content_bytes = int.from_bytes(record[body_at - 4 : body_at], "big", signed=True)
        topic_at = body_at + content_bytes
        properties_at = topic_at + len(topic) + _LENGTH_BYTES
        length = record[properties_at - _LENGTH_BYTES : properties_at]
        if not (
            magic in ENTRY_MAGICS
            and entry_bytes == physical_place + size
            and body_bytes == record_bytes == size
            and index >= created_index
            and pos + physical_place == found_place == place
            and record_magic == MAGIC_V1
            and found_queue_id == queue_id
            and found_offset == offset + number
            and content_bytes >= 0
            and record.startswith(topic, topic_at)
            and properties_at <= size
            and int.from_bytes(length, "big", signed=True) == size - properties_at
            and (not body_crc or crc32(record) == body_crc)
            and (not with_tags or _names_tags(record[properties_at:], tags_code))
        ):
            break
        records.append(record)
    return records


def _names_tags(properties: bytes, tags_code: int) -> bool:
    """Return whether properties are short, and have the tags of a unit."""
    return len(properties) <= _PROPERTIES_BYTES_MAX and code_of_tags(properties) == tags_code
