"""Requests of RocketMQ's clients, brokers and name servers: recorded ones and hostile ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.rocketmq import message_batch, message_record, names, properties
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.consumer_groups import Heartbeat
from dledger_formats.rocketmq.ext_fields import NoFields
from dledger_formats.rocketmq.json_bodies import parse
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_formats.rocketmq.offsets import QueueFields
from dledger_formats.rocketmq.pulls import PullFields
from dledger_formats.rocketmq.requests import FORMS, RequestForm
from dledger_formats.rocketmq.sends import LongSendMessageFields, SendMessageFields

GOLDEN = Path(__file__).parent / "golden" / "rocketmq-frames.jsonl"
# Between the Raft cores of Java's brokers, between a master and its slave, and what no part of this
# project serves yet.
OTHERS = ("raft-", "ha-", "topic-stats-", "consume-stats-")
ONLY_IN_ANSWERS_OF_SUCCESS = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.QUERY_NOT_FOUND)


class Case:
    """One recorded frame, and the form of its request."""

    def __init__(self, name: str, command: RemotingCommand, form: RequestForm) -> None:
        self.name = name
        self.command = command
        self.form = form
        self.fields = form.answer_fields if command.is_response else form.fields
        self.body = form.answer_body if command.is_response else form.body


def cases() -> list[Case]:
    """Return every frame, an answer with the form of the request before it."""
    found: list[Case] = []
    request = -1
    for line in GOLDEN.read_text().splitlines():
        frame = json.loads(line)
        if frame["name"].startswith(OTHERS):
            continue
        [command] = FrameDecoder().feed(bytes.fromhex(frame["hex"]))
        request = request if command.is_response else command.code
        name = f"{frame['name']}-{frame['direction']}-{frame['version']}-{len(found)}"
        found.append(Case(name, command, FORMS[RequestCode(request)]))
    return found


CASES = cases()
FRAMES = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def plain(raw: bytes) -> Any:
    """Return JSON as Java's reader understands it: a key without quotes is a text."""
    return parse(raw)


@FRAMES
def test_the_ext_fields_of_a_recorded_frame_are_written_back_unchanged(case: Case) -> None:
    recorded = case.command.ext_fields or {}
    if case.command.code in ONLY_IN_ANSWERS_OF_SUCCESS and not recorded:
        assert NoFields.from_ext(recorded).to_ext() == {}
        return

    assert case.fields.from_ext(recorded).to_ext() == recorded


@FRAMES
def test_the_json_body_of_a_recorded_frame_is_written_back_unchanged(case: Case) -> None:
    raw = case.command.body
    if not raw.startswith(b"{"):
        assert case.body is None or not raw
        return

    assert case.body is not None
    assert json.loads(case.body.from_json(raw).to_json()) == plain(raw)


@pytest.mark.parametrize("case", [c for c in CASES if "send" in c.name and c.command.body])
def test_the_message_of_a_recorded_send_is_written_back_unchanged(case: Case) -> None:
    fields = case.fields.from_ext(case.command.ext_fields)
    assert isinstance(fields, SendMessageFields)
    assert fields.properties is not None
    separated = fields.properties.removesuffix("\x02") + "\x02"

    assert properties.encode(properties.decode(fields.properties)) == separated
    if fields.batch:
        messages = message_batch.decode(case.command.body)
        assert [message.body for message in messages] == [b"Batch 0-0", b"Batch 0-1", b"Batch 0-2"]
        assert message_batch.encode(messages) == case.command.body


@pytest.mark.parametrize("case", [c for c in CASES if "pull" in c.name and c.command.body])
def test_the_records_of_a_recorded_pull_are_written_back_unchanged(case: Case) -> None:
    raws = list(message_record.divide(case.command.body))

    assert b"".join(raws) == case.command.body
    assert [message_record.encode(message_record.decode(raw)) for raw in raws] == raws


def test_the_recorded_frames_cover_every_way_to_send_and_the_held_pull() -> None:
    recorded = {RequestCode(c.command.code) for c in CASES if not c.command.is_response}

    assert set(FORMS) - recorded == {
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    }


def test_a_registration_has_the_checksum_of_its_body() -> None:
    registrations = [c for c in CASES if c.command.code == RequestCode.REGISTER_BROKER]

    assert len(registrations) > 9
    for case in registrations:
        fields = names.RegisterBrokerFields.from_ext(case.command.ext_fields)
        assert fields.body_crc32 == names.body_checksum(case.command.body)


def test_the_long_names_of_a_send_mean_the_same_as_the_short_ones() -> None:
    long = next(c for c in CASES if c.command.code == RequestCode.SEND_MESSAGE)
    fields = LongSendMessageFields.from_ext(long.command.ext_fields)
    short = SendMessageFields.to_ext(
        SendMessageFields(**{name: getattr(fields, name) for name in fields.__struct_fields__})
    )

    assert (short["a"], short["b"], short["e"]) == ("lab-producer", "T", "3")
    assert SendMessageFields.from_ext(short).properties == fields.properties
    assert len(short) == len(long.command.ext_fields or {})


# Hostile input.

PULL = {
    "consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": "5", "maxMsgNums": "32",
    "sysFlag": "2", "commitOffset": "0", "suspendTimeoutMillis": "15000", "subVersion": "0",
}  # fmt: skip


@pytest.mark.parametrize("missing", PULL)
def test_a_missing_field_is_named(missing: str) -> None:
    with pytest.raises(FormatError, match=missing):
        PullFields.from_ext({key: text for key, text in PULL.items() if key != missing})


@pytest.mark.parametrize(
    "text",
    [
        "", " 1", "1 ", "+1", "1.0", "1e3", "1E3", "0x1", "1_0", "true", "null", "NaN", "٣", "-",
        "2147483648", "-2147483649", "9" * 5000, "--1", "1-", "\x00",
    ],
)  # fmt: skip
def test_a_number_that_java_would_not_read_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="queueId"):
        QueueFields.from_ext({"topic": "T", "queueId": text})


@pytest.mark.parametrize("text", ["", "2", "00", "yes", "null", "True ", "tru"])
def test_a_boolean_is_true_or_false(text: str) -> None:
    with pytest.raises(FormatError, match=r"\bk\b"):
        SendMessageFields.from_ext(
            {"a": "p", "b": "T", "c": "", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}
            | {"k": text}
        )


def test_numbers_at_the_borders_of_their_width_are_read() -> None:
    for text in ("-2147483648", "2147483647", "-1", "0"):
        assert QueueFields.from_ext({"topic": "T", "queueId": text}).queue_id == int(text)


def test_a_boolean_may_have_capitals_as_in_java() -> None:
    fields = {"a": "p", "b": "T", "c": "", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}

    assert SendMessageFields.from_ext(fields | {"k": "TRUE", "m": "False"}).unit_mode is True


def test_more_fields_than_any_release_has_are_refused_before_they_are_read() -> None:
    many = {f"x{number}": "1" for number in range(65)}

    for kind in (QueueFields, LongSendMessageFields):
        with pytest.raises(FormatError, match="65 ext fields"):
            kind.from_ext(many)


def test_a_heartbeat_may_not_be_longer_than_its_bound() -> None:
    with pytest.raises(FormatError, match="at most"):
        Heartbeat.from_json(b'{"clientID":"%s"}' % (b"x" * (256 << 10)))
    with pytest.raises(FormatError, match="opening brackets"):
        Heartbeat.from_json(b"[" * 9000)


def test_a_record_of_a_recorded_pull_has_the_message_that_was_sent() -> None:
    case = next(c for c in CASES if c.name.startswith("pull-ok-response"))
    record = message_record.decode(next(message_record.divide(case.command.body)))

    assert isinstance(record, MessageRecord)
    assert (record.topic, record.queue_id, record.queue_offset) == ("T", 3, 0)
    assert (record.physical_offset, record.body) == (602, b"Hello 2")
    assert message_record.host_text(record.store_host) == "127.0.0.1:30931"
    assert properties.decode(record.properties.decode())["TAGS"] == "TagA"
