"""Decoders of what RocketMQ's clients send, of stored messages, and of a broker's state."""

import contextlib
import io
import json
from pathlib import Path

import msgspec

from dledger_broker.door.between_members.door_frames import (
    DoorAnswer,
    DoorRequest,
    PresenceNote,
    Way,
    decode_answers,
    decode_identity,
    decode_presence,
    decode_refusal,
    decode_requests,
    encode_answers,
    encode_identity,
    encode_presence,
    encode_refusal,
    encode_requests,
)
from dledger_broker.errors import NotABrokerLogError
from dledger_broker.queues.builder import changes_of
from dledger_broker.state.broker_state import BrokerState
from dledger_broker_log.logs import Log, Send
from dledger_broker_log.states import applied, dumped, group_set, joined, offsets, topic_set
from dledger_formats.json_objects import FormatError
from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.rocketmq import (
    consume_queue,
    loose_heartbeats,
    message_batch,
    message_id,
    message_record,
    properties,
    state_records,
)
from dledger_formats.rocketmq.consumer_groups import Consumer, Subscription
from dledger_formats.rocketmq.message_record import MessageRecord, MessageRecordError
from dledger_formats.rocketmq.requests import FORMS
from dledger_formats.rocketmq.state_records import QueuesLocked
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_fuzz.network_decoders import Decoder, Feed
from dledger_node.state_machine.machine import CommittedEntry

GOLDEN = Path(__file__).resolve().parents[2] / "formats" / "golden" / "rocketmq-frames.jsonl"
CPP_HEARTBEAT = (
    b'{"clientID":"7-127.0.0.1@DEFAULT","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,'
    b'"groupName":"billing","messageModel":1,"subscriptionDataSet":[{"subString":"*",'
    b'"subVersion":"1795629866395","topic":"orders"}]}]}'
)
COMMANDS = [
    command
    for line in GOLDEN.read_text().splitlines()
    if not json.loads(line)["name"].startswith(("ha-", "raft-"))
    for command in frames.FrameDecoder().feed(bytes.fromhex(json.loads(line)["hex"]))
]
RECORDS = [
    bytes(raw)
    for command in COMMANDS
    if command.body[4:8] == message_record.MAGIC_V1.to_bytes(4, "big")
    for raw in message_record.divide(command.body)
]


def ext_fields() -> tuple[list[bytes], Feed]:
    """Ext fields of every request and answer, as the header's decoder returns them."""
    kinds = sorted(
        {kind for form in FORMS.values() for kind in (form.fields, form.answer_fields)},
        key=lambda kind: kind.__name__,
    )
    texts = msgspec.json.Decoder(dict[str, str])
    turn = 0

    def feed(raw: bytes) -> None:
        nonlocal turn
        try:
            ext = texts.decode(raw)
        except (ValueError, RecursionError):
            return
        turn += 1
        for kind in (kinds[turn % len(kinds)], kinds[len(raw) % len(kinds)]):
            try:
                fields = kind.from_ext(ext)
            except FormatError:
                continue
            assert kind.from_ext(fields.to_ext()) == fields

    found = {json.dumps(command.ext_fields) for command in COMMANDS if command.ext_fields}
    return [text.encode() for text in sorted(found)], feed


def json_bodies() -> tuple[list[bytes], Feed]:
    """JSON bodies, with keys in quotes and without."""
    kinds = sorted(
        {kind for form in FORMS.values() for kind in (form.body, form.answer_body) if kind},
        key=lambda kind: kind.__name__,
    )
    turn = 0

    def feed(raw: bytes) -> None:
        nonlocal turn
        turn += 1
        kind = kinds[turn % len(kinds)]
        try:
            body = kind.from_json(raw)
        except FormatError:
            return
        assert kind.from_json(body.to_json()) == body

    found = {command.body for command in COMMANDS if command.body.startswith(b"{")}
    return [raw for raw in sorted(found) if len(raw) < 1024], feed


def heartbeats() -> tuple[list[bytes], Feed]:
    """Heartbeats, those of the C++ client among them."""

    def feed(raw: bytes) -> None:
        try:
            beat = loose_heartbeats.read(raw)
        except FormatError:
            return
        assert loose_heartbeats.read(beat.to_json()) == beat

    return [CPP_HEARTBEAT], feed


def stored_messages() -> tuple[list[bytes], Feed]:
    """Records end to end, with the checksum of the body or without."""

    def feed(raw: bytes) -> None:
        records: list[tuple[memoryview, MessageRecord]] = []
        with contextlib.suppress(MessageRecordError):
            for one in message_record.divide(raw):
                record = message_record.decode(one, check_crc=False)
                records.append((one, record))
        for one, record in records:
            consume_queue.tags_code(record)
            message_record.host_text(record.born_host)
            again = message_record.encode(record)
            assert (again[:8], again[12:]) == (one[:8], one[12:])
            assert message_record.decode(again) == record

    return RECORDS, feed


def message_batches() -> tuple[list[bytes], Feed]:
    """Bodies of batches."""

    def feed(raw: bytes) -> None:
        try:
            messages = message_batch.decode(raw)
        except FormatError:
            return
        assert message_batch.decode(message_batch.encode(messages)) == messages

    return [command.body for command in COMMANDS if command.code == 320], feed


def message_properties() -> tuple[list[bytes], Feed]:
    """Properties: one that is found by name is the one that reading all of them returns."""

    def feed(raw: bytes) -> None:
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return
        pairs = properties.decode(text)
        assert properties.decode(properties.encode(pairs)) == pairs
        for name in (properties.TAGS, properties.DELAY, properties.WAIT):
            found = properties.find(raw, name.encode())
            assert (found and found.decode()) == pairs.get(name)

    return [message_record.decode(raw).properties for raw in RECORDS], feed


def message_ids() -> tuple[list[bytes], Feed]:
    """Message ids."""

    def feed(raw: bytes) -> None:
        try:
            found = message_id.parse(raw.decode("latin-1"))
        except FormatError:
            return
        assert message_id.parse(str(found)) == found

    hosts = [message_record.pack_host(address, 10911) for address in ("10.0.0.1", "::1")]
    return [str(message_id.MessageId(host, 48)).encode() for host in hosts], feed


def state_changes() -> tuple[list[bytes], Feed]:
    """State records."""

    def feed(raw: bytes) -> None:
        try:
            record = state_records.decode(raw)
        except FormatError:
            return
        assert state_records.decode(state_records.encode(record)) == record

    consumer = Consumer(
        group_name="g",
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=[Subscription(topic="T", sub_string="a||b", sub_version=7)],
    )
    config = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4, perm=6)
    pairs = state_records.GroupOffsets(group="g", topic="T", offsets=[(0, 5), (3, 7)])
    records: list[state_records.AnyStateRecord] = [
        state_records.TopicSet(config=config),
        state_records.TopicDeleted(topic="T"),
        state_records.GroupDeleted(group="g", clean_offset=True),
        state_records.Offsets(groups=[pairs]),
        state_records.ClientJoined(client_id="10.0.0.1@7", consumer=consumer),
        state_records.QueuesLocked(client_id="10.0.0.1@7", group="g", queues=[("T", 0)]),
    ]
    return [state_records.encode(record) for record in records], feed


def short_records() -> tuple[list[bytes], Feed]:
    """Records that a state machine reads: decoding one twice gives the same result."""

    def feed(raw: bytes) -> None:
        try:
            record = message_record.decode(raw)
        except MessageRecordError:
            return
        assert message_record.decode(memoryview(raw)) == record

    small = [
        MessageRecord("T", 0, 0, 48, b"", sys_flag=flags, born_host=born, store_host=store)
        for flags, born, store in ((0, bytes(8), bytes(8)), (48, bytes(20), bytes(20)))
    ]
    return [bytes(message_record.encode(record)) for record in small], feed


def broker_states() -> tuple[list[bytes], Feed]:
    """Dumps of a broker's state, which a member fetches from another."""

    def feed(raw: bytes) -> None:
        state = BrokerState()
        try:
            state.load(io.BytesIO(raw))
        except ValueError:
            return
        again = BrokerState()
        again.load(io.BytesIO(b"".join(state.dump())))
        assert list(again.dump()) == list(state.dump())

    steps = (
        group_set("g"), topic_set("T", 2), Send("T", 1), offsets("g", "T", (1, 4)),
        joined("a", "g"), QueuesLocked(client_id="a", group="g", queues=[("T", 1)]),
    )  # fmt: skip
    return [dumped(applied(*steps[:count])) for count in range(len(steps) + 1)], feed


def broker_entries() -> tuple[list[bytes], Feed]:
    """Entries of a log: the state and the builder of queues refuse all but messages."""

    def feed(raw: bytes) -> None:
        state = BrokerState()
        before = dumped(state)
        entry = CommittedEntry(0, raw)
        try:
            state.apply([entry])
        except NotABrokerLogError:
            assert dumped(state) == before
        else:
            changes_of([entry])

    log = Log().extend([Send("T", 0, "TagA"), topic_set("T")])
    return [RECORDS[0], *(entry.body for entry in log.batch(0, 2))], feed


def door_frames() -> tuple[list[bytes], Feed]:
    """Requests that another member passes on, the leader's answers, and notes about clients."""
    request = DoorRequest(1, 310, 2, 0, 479, {"b": "T"}, b"body", bytes(8), 7, 8, 1)
    answer = DoorAnswer(1, Way.STORED, b"frame")
    frame = frames.FrameDecoder()
    seeds = [
        command.body
        for encoded in (encode_requests([request, request]), encode_answers([answer]))
        for command in frame.feed(encoded)
    ]
    seeds += [encode_identity(7), encode_refusal(DLedgerResponseCode.DISK_FULL)]
    seeds.append(encode_presence(PresenceNote("n1", True, [("g", "c1")], [("g", "c2")])))

    def feed(raw: bytes) -> None:
        for decode in (
            decode_requests, decode_answers, decode_presence, decode_identity, decode_refusal,
        ):  # fmt: skip
            with contextlib.suppress(FormatError):
                decode(raw)

    return seeds, feed


DECODERS: tuple[Decoder, ...] = (
    ext_fields, json_bodies, heartbeats, stored_messages, message_batches, message_properties,
    message_ids,
    state_changes, short_records, broker_states, broker_entries,
    door_frames,
)  # fmt: skip
