"""What RocketMQ's C++ client writes otherwise than Java's, and Java's broker reads all the same.

The bytes are those of its release 1.2, which the Python package `rocketmq` 0.4.4 has.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.frames import FrameDecoder, FrameError, RemotingCommand, encode
from dledger_formats.rocketmq import loose_heartbeats
from dledger_formats.rocketmq.consumer_groups import Heartbeat
from dledger_formats.rocketmq.sends import SendMessageFields

SEND = {"a": "p", "b": "T", "c": "", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}
HEARTBEAT: dict[str, Any] = {
    "clientID": "26746-127.0.0.1@DEFAULT",
    "consumerDataSet": [
        {
            "consumeFromWhere": 0,
            "consumeType": 1,
            "groupName": "billing",
            "messageModel": 1,
            "subscriptionDataSet": [
                {"subString": "*", "subVersion": "1795629866395", "topic": "orders"}
            ],
        }
    ],
}


def decoded(header: dict[str, Any], body: bytes = b"") -> RemotingCommand:
    raw = json.dumps(header).encode()
    length, word = (4 + len(raw) + len(body)).to_bytes(4, "big"), len(raw).to_bytes(4, "big")
    [command] = FrameDecoder().feed(length + word + raw + body)
    return command


def with_ext(ext: object) -> dict[str, Any]:
    return {"code": 10, "opaque": 7, "flag": 0, "language": "CPP", "version": 253, "extFields": ext}


def test_ext_fields_may_be_numbers_and_truths() -> None:
    ext = {"queueId": 3, "queueOffset": -1, "unitMode": False, "batch": True, "topic": "T"}

    command = decoded(with_ext(ext | {"none": None}), b"body")

    assert command.ext_fields == {
        "queueId": "3", "queueOffset": "-1", "unitMode": "false", "batch": "true", "topic": "T",
    }  # fmt: skip
    assert (command.code, command.opaque, command.language) == (10, 7, "CPP")
    assert command.body == b"body"


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans()))
def test_numbers_and_truths_are_read_as_java_prints_them(ext: dict[str, Any]) -> None:
    printed = {
        key: json.dumps(value) if isinstance(value, int) else value for key, value in ext.items()
    }

    assert decoded(with_ext(ext)).ext_fields == printed


@pytest.mark.parametrize("value", [1.5, [], {"a": 1}], ids=str)
def test_ext_fields_of_other_kinds_are_refused(value: object) -> None:
    with pytest.raises(FrameError, match="neither a text nor a whole number") as error:
        decoded(with_ext({"a": value}))

    assert error.value.reason == "header"


@pytest.mark.parametrize("ext", [7, "a", [1]], ids=str)
def test_ext_fields_that_are_no_object_are_refused(ext: object) -> None:
    with pytest.raises(FrameError, match="extFields"):
        decoded(with_ext(ext))


def test_what_is_read_loosely_is_written_as_java_does() -> None:
    command = decoded(with_ext({"queueId": 3}))

    assert FrameDecoder().feed(encode(command)) == [command]
    assert b'"queueId":"3"' in encode(command)


@pytest.mark.parametrize("text", ["0", "1"])
def test_a_truth_that_is_a_number_is_false_as_in_java(text: str) -> None:
    assert SendMessageFields.from_ext(SEND | {"k": text}).unit_mode is False


def test_a_heartbeat_may_have_positions_for_names() -> None:
    beat = loose_heartbeats.read(json.dumps(HEARTBEAT).encode() + b"\n")

    [consumer] = beat.consumer_data_set
    assert consumer.consume_type == "CONSUME_PASSIVELY"
    assert consumer.message_model == "CLUSTERING"
    assert consumer.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
    assert consumer.subscription_data_set[0].sub_version == 1795629866395


def test_a_heartbeat_of_java_is_read_as_ever() -> None:
    beat = loose_heartbeats.read(json.dumps(HEARTBEAT).encode())

    assert loose_heartbeats.read(beat.to_json()) == Heartbeat.from_json(beat.to_json()) == beat


@pytest.mark.parametrize(
    ("key", "value"),
    [("consumeType", 2), ("messageModel", -1), ("consumeFromWhere", 6), ("consumeType", True)],
)
def test_a_position_beyond_the_names_is_refused(key: str, value: object) -> None:
    consumer = HEARTBEAT["consumerDataSet"][0] | {key: value}

    with pytest.raises(FormatError, match=key):
        loose_heartbeats.read(json.dumps(HEARTBEAT | {"consumerDataSet": [consumer]}).encode())


@pytest.mark.parametrize("version", ["", "-1", "1.0", "9" * 20, "٣"])
def test_a_version_that_is_no_number_is_refused(version: str) -> None:
    consumer = HEARTBEAT["consumerDataSet"][0]
    subscription = consumer["subscriptionDataSet"][0] | {"subVersion": version}
    changed = consumer | {"subscriptionDataSet": [subscription]}

    with pytest.raises(FormatError, match="subVersion"):
        loose_heartbeats.read(json.dumps(HEARTBEAT | {"consumerDataSet": [changed]}).encode())
