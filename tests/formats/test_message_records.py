"""Messages as they are stored: records and consume queues of Java's brokers, and hostile bytes."""

import json
import struct
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.json_objects import FormatError
from dledger_formats.log import disk
from dledger_formats.rocketmq import (
    consume_queue,
    delay_levels,
    message_batch,
    message_id,
    message_record,
    properties,
    topic_names,
)
from dledger_formats.rocketmq.codes import MessageSysFlag
from dledger_formats.rocketmq.message_batch import BatchMessage
from dledger_formats.rocketmq.message_record import MessageRecord, MessageRecordError

GOLDEN = Path(__file__).parent / "golden"
STORES: dict[str, Any] = json.loads((GOLDEN / "rocketmq-manifest.json").read_text())


def stored_records() -> list[bytes]:
    """Return the bodies of the entries of a Java broker's log."""
    with tarfile.open(GOLDEN / STORES["archive"]) as tar:
        name = "store-n0/dledger-n0/data/00000000000000000000"
        data = tar.extractfile(name)
        assert data is not None
        log = data.read()
    rows = [dict(zip(STORES["entries_columns"], row, strict=True)) for row in STORES["entries"]]
    begins = [row["pos"] + disk.ENTRY_HEADER_SIZE for row in rows]
    return [
        log[begin : begin + row["record_size"]] for begin, row in zip(begins, rows, strict=True)
    ]


STORED = stored_records()

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
IPV4, IPV6 = st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20)


@st.composite
def message_records(draw: st.DrawFn) -> MessageRecord:
    flags = draw(st.integers(0, 15)) | draw(st.sampled_from((0, 16, 32, 48)))
    magic = draw(st.sampled_from((message_record.MAGIC_V1, message_record.MAGIC_V2)))
    topic_max = 31 if magic == message_record.MAGIC_V1 else 300
    return MessageRecord(
        topic=draw(st.text(max_size=topic_max)),
        queue_id=draw(INT32),
        queue_offset=draw(INT64),
        physical_offset=draw(INT64),
        body=draw(st.binary(max_size=100)),
        properties=draw(st.binary(max_size=100)),
        flag=draw(INT32),
        sys_flag=flags,
        born_timestamp=draw(INT64),
        born_host=draw(IPV6 if flags & 16 else IPV4),
        store_timestamp=draw(INT64),
        store_host=draw(IPV6 if flags & 32 else IPV4),
        reconsume_times=draw(INT32),
        prepared_offset=draw(INT64),
        magic=magic,
    )


# Records of Java.


@pytest.mark.parametrize("number", range(len(STORED)))
def test_a_record_of_a_java_broker_is_written_back_unchanged(number: int) -> None:
    assert message_record.encode(message_record.decode(STORED[number])) == STORED[number]


def test_the_records_of_a_java_broker_are_what_its_manifest_says() -> None:
    for raw, row in zip(STORED, STORES["entries"], strict=True):
        record = message_record.decode(raw)
        said = dict(zip(STORES["entries_columns"], row, strict=True))
        assert record.physical_offset == said["pos"] + disk.ENTRY_HEADER_SIZE
        names = ("topic", "queue", "queue_offset", "sys_flag", "store_timestamp")
        assert [said[name] for name in names] == [
            record.topic, record.queue_id, record.queue_offset, record.sys_flag,
            record.store_timestamp,
        ]  # fmt: skip


def test_the_units_of_java_s_consume_queues_follow_from_its_records() -> None:
    queues: dict[str, list[list[int]]] = {}
    for raw in STORED:
        record = message_record.decode(raw)
        units = queues.setdefault(f"{record.topic}/{record.queue_id}", [])
        assert len(units) == record.queue_offset
        units.append([record.physical_offset, len(raw), consume_queue.tags_code(record)])

    assert queues == STORES["nodes"]["n0"]["consume_queues"]


# Records of any kind.


@given(message_records())
def test_a_record_is_read_as_it_was_written(record: MessageRecord) -> None:
    assert message_record.decode(message_record.encode(record)) == record


@given(message_records(), st.integers(0, 2**31 - 1))
def test_a_moved_record_is_for_another_queue_and_the_same_otherwise(
    record: MessageRecord, queue_id: int
) -> None:
    raw = message_record.encode(record)
    message_record.move(raw, queue_id)

    assert message_record.decode(raw) == msgspec.structs.replace(record, queue_id=queue_id)


@given(message_records(), INT64, INT64, INT64)
def test_a_stamp_changes_the_three_fields_and_nothing_else(
    record: MessageRecord, queue_offset: int, physical_offset: int, store_timestamp: int
) -> None:
    raw = message_record.encode(record)
    message_record.stamp(
        raw,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        store_timestamp=store_timestamp,
    )
    stamped = message_record.decode(raw)

    assert [stamped.queue_offset, stamped.physical_offset, stamped.store_timestamp] == [
        queue_offset, physical_offset, store_timestamp,
    ]  # fmt: skip
    message_record.stamp(
        raw,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        store_timestamp=record.store_timestamp,
    )
    assert message_record.decode(raw) == record


@given(st.lists(message_records(), max_size=4))
def test_records_end_to_end_are_divided(records: list[MessageRecord]) -> None:
    raws = [bytes(message_record.encode(record)) for record in records]

    assert list(message_record.divide(b"".join(raws))) == raws


@pytest.mark.parametrize("cut", [1, 40, 90, 200])
def test_a_record_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(MessageRecordError):
        message_record.decode(STORED[0][:-cut])
    with pytest.raises(MessageRecordError):
        list(message_record.divide(STORED[1] + STORED[0][:-cut]))


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, b"\x00\x00\x00\xe4", "size"),
        (4, b"\xda\xa3\x20\xa8", "magic"),
        (84, b"\x7f\xff\xff\xff", "body"),
        (84, b"\xff\xff\xff\xff", "body"),
        (84, b"\x00\x00\x00\x06", "properties"),
        (95, b"\xff", "topic"),
        (96, b"\xff", "topic"),
        (97, b"\xff\xff", "properties"),
        (97, b"\x00\x01", "properties"),
        (88, b"J", "crc"),
    ],
)
def test_a_record_whose_parts_do_not_fit_is_refused(at: int, value: bytes, reason: str) -> None:
    raw = STORED[0][:at] + value + STORED[0][at + len(value) :]

    with pytest.raises(MessageRecordError) as caught:
        message_record.decode(raw)

    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "record",
    [
        MessageRecord("t" * 128, 0, 0, 0, b""),
        MessageRecord("T", 0, 0, 0, b"", b"p" * 32768),
        MessageRecord("T", 0, 0, 0, bytes(disk.BODY_SIZE_MAX)),
        MessageRecord("T", 1 << 31, 0, 0, b""),
        MessageRecord("T", 0, 0, 0, b"", sys_flag=16),
        MessageRecord("t" * 32768, 0, 0, 0, b"", magic=message_record.MAGIC_V2),
    ],
    ids=["topic", "properties", "body", "queue", "host", "topic of version 2"],
)
def test_a_record_that_no_reader_could_read_is_not_written(record: MessageRecord) -> None:
    with pytest.raises(MessageRecordError):
        message_record.encode(record)


# Hosts and ids.


@pytest.mark.parametrize(
    ("address", "port", "text"),
    [("127.0.0.1", 30931, "127.0.0.1:30931"), ("::1", 10911, "[::1]:10911")],
)
def test_a_host_is_written_for_people(address: str, port: int, text: str) -> None:
    assert message_record.host_text(message_record.pack_host(address, port)) == text


def test_the_message_id_is_java_s() -> None:
    host = message_record.pack_host("127.0.0.1", 30931)

    assert str(message_id.MessageId(host, 0x30)) == "7F000001000078D30000000000000030"


@given(st.one_of(IPV4, IPV6), INT64)
def test_a_message_id_is_read_as_it_was_written(host: bytes, offset: int) -> None:
    written = message_id.MessageId(host, offset)

    assert message_id.parse(str(written)) == written


@pytest.mark.parametrize("text", ["", "0" * 31, "G" * 32, "0" * 34, " " * 32, "0 " * 16])
def test_what_is_no_message_id_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        message_id.parse(text)


# Properties.

NAMES = st.text(min_size=1, max_size=9).filter(lambda text: not set(text) & {"\x01", "\x02"})
VALUES = st.text(min_size=1, max_size=9).filter(lambda text: "\x02" not in text)


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_properties_are_read_as_they_were_written(pairs: dict[str, str]) -> None:
    assert properties.decode(properties.encode(pairs)) == pairs
    assert properties.decode(properties.encode(pairs).removesuffix("\x02")) == pairs


@given(st.text(alphabet="ab\x01\x02", max_size=30), st.sampled_from(["a", "b", "ab", "ba", "aa"]))
def test_one_property_is_found_as_in_all_of_them(text: str, name: str) -> None:
    found = properties.find(text.encode(), name.encode())

    assert (found and found.decode()) == properties.decode(text).get(name)


@pytest.mark.parametrize("pair", [("", "v"), ("n", ""), ("n\x01", "v"), ("n", "v\x02")])
def test_a_property_that_would_be_read_as_another_is_not_written(pair: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        properties.encode(dict([pair]))


# Batches.

BATCHES = st.lists(
    st.builds(BatchMessage, INT32, st.binary(max_size=30), st.binary(max_size=30)),
    min_size=1, max_size=5,
)  # fmt: skip


@given(BATCHES)
def test_a_batch_is_read_as_it_was_written(messages: list[BatchMessage]) -> None:
    assert message_batch.decode(message_batch.encode(messages)) == messages


@given(BATCHES)
def test_the_messages_of_a_batch_are_counted_by_their_sizes(messages: list[BatchMessage]) -> None:
    assert message_batch.count(message_batch.encode(messages)) == len(messages)


@given(BATCHES, st.binary(max_size=30))
def test_a_batch_that_is_read_is_counted(messages: list[BatchMessage], more: bytes) -> None:
    raw = message_batch.encode(messages) + more
    try:
        expected = len(message_batch.decode(raw))
    except FormatError:
        return
    assert message_batch.count(raw) == expected


@pytest.mark.parametrize(
    "raw", [b"", b"\0", b"\0\0\0\x16", b"\0\0\0\x15" + bytes(17), b"\xff" * 40]
)
def test_a_batch_whose_sizes_are_wrong_is_not_counted(raw: bytes) -> None:
    with pytest.raises(FormatError):
        message_batch.count(raw)


@given(BATCHES, st.integers(1, 30))
def test_a_batch_cut_short_is_refused(messages: list[BatchMessage], cut: int) -> None:
    raw = message_batch.encode(messages)
    sound = {
        len(message_batch.encode(messages[:count])) for count in range(1, len(messages))
    }  # a shorter batch
    if len(raw) - cut not in sound:
        with pytest.raises(FormatError):
            message_batch.decode(raw[:-cut])


def test_a_batch_has_at_most_so_many_messages() -> None:
    one = message_batch.encode([BatchMessage(0, b"", b"")])

    assert len(message_batch.decode(one * message_batch.BATCH_MESSAGES_MAX)) == 8192
    with pytest.raises(FormatError, match="more than"):
        message_batch.decode(one * (message_batch.BATCH_MESSAGES_MAX + 1))


# Consume queues.


# Values that are well known, one of which is the smallest number; and tags of the stores above.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0), ("hello", 99162322), ("polygenelubricants", -(1 << 31)), ("TagA", 2598919),
        ("Aa", 2112), ("BB", 2112), ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)  # fmt: skip
def test_the_hash_of_a_tag_is_java_s(text: str, value: int) -> None:
    assert consume_queue.java_hash(text.encode()) == value


@given(st.text(max_size=600))
def test_the_hash_of_a_long_text_is_that_of_its_units_one_by_one(text: str) -> None:
    value = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be")):
        value = (31 * value + unit) & 0xFFFFFFFF

    assert consume_queue.java_hash(text.encode()) & 0xFFFFFFFF == value


def record_of(topic: str, pairs: dict[str, str], sys_flag: int = 0) -> MessageRecord:
    encoded = properties.encode(pairs).encode()
    return MessageRecord(topic, 0, 0, 0, b"", encoded, 0, sys_flag, store_timestamp=1000)


def test_a_delayed_message_is_queued_under_the_time_of_its_delivery() -> None:
    waiting = {"DELAY": "3", "TAGS": "TagA"}
    schedule = topic_names.SCHEDULE_TOPIC

    assert consume_queue.tags_code(record_of(schedule, waiting)) == 11_000
    assert consume_queue.tags_code(record_of("T", waiting)) == 2598919
    assert consume_queue.tags_code(record_of(schedule, {"DELAY": "99"})) == 7_201_000
    assert consume_queue.tags_code(record_of(schedule, waiting | {"DELAY": "x"})) == 2598919


def test_delay_levels_are_those_of_the_specification() -> None:
    spoken = (
        "1s", "5s", "10s", "30s", "1m", "2m", "3m", "4m", "5m", "6m", "7m", "8m", "9m", "10m",
        "20m", "30m", "1h", "2h",
    )  # fmt: skip
    units = {"s": 1000, "m": 60_000, "h": 3_600_000}

    assert list(delay_levels.DELAYS_MS) == [int(each[:-1]) * units[each[-1]] for each in spoken]


@pytest.mark.parametrize(
    ("flag", "queued"),
    [
        (0, True),
        (MessageSysFlag.TRANSACTION_PREPARED, False),
        (MessageSysFlag.TRANSACTION_COMMIT, True),
        (MessageSysFlag.TRANSACTION_ROLLBACK, False),
    ],
)
def test_open_and_rolled_back_transactions_have_no_unit(flag: int, queued: bool) -> None:
    assert consume_queue.is_queued(record_of("T", {}, flag)) is queued


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("T", True), ("%RETRY%g-1", True), ("a|b_c", True), ("x" * 127, True), ("x" * 128, False),
        ("", False), ("a.b", False), ("..", False), ("a/b", False), ("a\n", False), ("ä", False),
    ],
)  # fmt: skip
def test_a_topic_s_name_has_java_s_characters(name: str, valid: bool) -> None:
    assert topic_names.is_valid(name) is valid
