"""JSON bodies as Java's library writes them, state records, and the frames of answers."""

import json
import re
import time
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dledger_formats import json_objects
from dledger_formats.json_objects import DEPTH_MAX, FormatError
from dledger_formats.protocol import frames
from dledger_formats.rocketmq import state_records
from dledger_formats.rocketmq.answers import encode_answer
from dledger_formats.rocketmq.codes import VERSION_5_3_3
from dledger_formats.rocketmq.consumer_groups import Consumer, Heartbeat, Subscription
from dledger_formats.rocketmq.ext_fields import ExtFields
from dledger_formats.rocketmq.json_bodies import parse
from dledger_formats.rocketmq.offsets import ConsumerOffsets, OffsetAnswerFields
from dledger_formats.rocketmq.sends import SendAnswerFields
from dledger_formats.rocketmq.state_records import (
    AnyStateRecord,
    ClientJoined,
    ClientLeft,
    GroupDeleted,
    GroupOffsets,
    GroupSet,
    Offsets,
    QueuesLocked,
    QueuesUnlocked,
    TopicDeleted,
    TopicSet,
)
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_formats.rocketmq.topics import TopicConfig

BARE_KEY = re.compile("[{,][ \n]*[a0e1.-]+[ \n]*:")

# Keys without quotes.


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{0:"a",1:"b"}', {"0": "a", "1": "b"}),
        (b'{ 0 : 1 , -1 : 2 }', {"0": 1, "-1": 2}),
        (b'{"a":{0:{$b_c-d:[1,2]}}}', {"a": {"0": {"$b_c-d": [1, 2]}}}),
        (b'{"a":"{0:1,2:3}",4:5}', {"a": "{0:1,2:3}", "4": 5}),
        (b'{"a\\",0:":1,0:2}', {'a",0:': 1, "0": 2}),
        (b'{"T@g":{\n0:4,1:5\n\t}\n}', {"T@g": {"0": 4, "1": 5}}),
    ],
)  # fmt: skip
def test_a_key_may_lack_its_quotes(raw: bytes, value: Any) -> None:
    assert parse(raw) == value


@given(
    st.dictionaries(
        st.integers().map(str),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=9),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=5), inner, max_size=3)
            ),
            max_leaves=5,
        ),
        max_size=4,
    )
)
def test_json_without_quotes_around_numbers_as_keys_means_the_same(value: dict[str, Any]) -> None:
    items = ",".join(f"{key}:{json.dumps(item)}" for key, item in value.items())

    assert parse(f"{{{items}}}".encode()) == value


@pytest.mark.parametrize(
    "raw",
    [
        b"{a:1,a:2}", b'{0:1,"0":2}', b"{'a':1}", b"{a:b}", b"{a:1,}", b"{:1}", b"{a b:1}",
        b"[a:1]", b"{a:NaN}", b"{a:1e999}", b'{a:"\\ud800"}', b"{a:1", b"{\xffa:1}", b"{.5:1}",
        b"{a:1}}", b"{}{a:1}", b"",
    ],
)  # fmt: skip
def test_everything_else_is_as_strict_as_for_other_json(raw: bytes) -> None:
    with pytest.raises(FormatError):
        parse(raw)


@pytest.mark.parametrize(
    "unit", [b"{0:", b",9" * 2, b"{ ", b',"', b"{a", b'"\\', b", a ", b"{0:1},", b"[{0:[", b"9"]
)
def test_hostile_json_takes_time_in_proportion_to_its_length(unit: bytes) -> None:
    raw = unit * ((256 << 10) // len(unit))
    begun_s = time.thread_time()

    with pytest.raises(FormatError):
        parse(b"{" + raw)

    assert time.thread_time() - begun_s < 1


@given(
    st.text(alphabet='{}[],:"\\\0 \n0a1.-e', max_size=12)
    | st.from_regex(r'\{("[ab]":\[?("[ab:{]*"|1e?[0-9]{1,3}|\{\})\]?,?){1,3}\}', fullmatch=True)
)
def test_json_with_quoted_keys_is_read_as_other_json(text: str) -> None:
    raw = text.encode()
    try:
        expected = json_objects.parse(raw)
    except FormatError:
        assume(not BARE_KEY.search(text))
        with pytest.raises(FormatError):
            parse(raw)
    else:
        assert parse(raw) == expected


def test_json_may_be_nested_as_deeply_as_other_json() -> None:
    deep = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX

    assert parse(deep) == json_objects.parse(deep)
    with pytest.raises(FormatError, match="brackets"):
        parse(b"[%b]" % deep)


def test_the_offsets_of_a_java_broker_s_file_are_read() -> None:
    raw = b'{"offsetTable":{\n\t"T@g":{0:4,1:5\n\t},"%RETRY%g@g":{0:1}}}'

    assert ConsumerOffsets.from_json(raw).offset_table == {
        "T@g": {"0": 4, "1": 5},
        "%RETRY%g@g": {"0": 1},
    }


def test_a_list_may_not_be_longer_than_its_bound() -> None:
    with pytest.raises(FormatError, match="producerDataSet"):
        Heartbeat.from_json(
            b'{"clientID":"c","producerDataSet":[%s]}' % b",".join([b'{"groupName":"g"}'] * 1025)
        )


# State records.

INT = st.integers(0, 9)
NAMES = st.sampled_from(["T", "%RETRY%g", "a_b-c|d", "x" * 127])
TEXTS = st.text(min_size=1, max_size=9)
TOPICS = st.builds(
    TopicConfig,
    topic_name=NAMES,
    read_queue_nums=st.integers(1, 99),
    write_queue_nums=st.integers(1, 99),
    perm=st.integers(0, 7),
    attributes=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=2),
)
SUBSCRIPTIONS = st.builds(
    Subscription, topic=NAMES, sub_string=TEXTS, sub_version=INT, tags_set=st.lists(TEXTS)
)
CONSUMERS = st.builds(
    Consumer,
    group_name=NAMES,
    consume_type=TEXTS,
    message_model=TEXTS,
    consume_from_where=TEXTS,
    subscription_data_set=st.lists(SUBSCRIPTIONS, max_size=2),
)
LOCKED = st.lists(st.tuples(NAMES, INT), max_size=3)
STATE_RECORDS = st.one_of(
    st.builds(TopicSet, config=TOPICS),
    st.builds(TopicDeleted, topic=NAMES),
    st.builds(GroupSet, config=st.builds(SubscriptionGroup, group_name=NAMES)),
    st.builds(GroupDeleted, group=NAMES, clean_offset=st.booleans()),
    st.builds(
        Offsets,
        groups=st.lists(
            st.builds(
                GroupOffsets,
                group=NAMES,
                topic=NAMES,
                offsets=st.lists(st.tuples(INT, st.integers(0, (1 << 63) - 1)), max_size=3),
            ),
            max_size=3,
        ),
    ),
    st.builds(ClientJoined, client_id=TEXTS, consumer=CONSUMERS),
    st.builds(ClientLeft, client_id=TEXTS, group=NAMES),
    st.builds(QueuesLocked, client_id=TEXTS, group=NAMES, queues=LOCKED),
    st.builds(QueuesUnlocked, client_id=TEXTS, group=NAMES, queues=LOCKED),
)


@given(STATE_RECORDS)
def test_a_state_record_is_read_as_it_was_written(record: AnyStateRecord) -> None:
    body = state_records.encode(record)

    assert state_records.decode(body) == record
    assert list(json.loads(body))[:2] == ["v", "kind"]


@pytest.mark.parametrize(
    "record",
    [
        TopicDeleted(topic="a/b"),
        TopicDeleted(topic="a\n"),
        TopicSet(
            config=TopicConfig(topic_name="..", read_queue_nums=1, write_queue_nums=1, perm=6)
        ),
        TopicSet(config=TopicConfig(topic_name="T", read_queue_nums=0, write_queue_nums=1, perm=6)),
        GroupSet(config=SubscriptionGroup(group_name="")),
        ClientLeft(client_id="", group="g"),
        ClientLeft(client_id="x" * 256, group="g"),
        QueuesLocked(client_id="c", group="g", queues=[("T", -1)]),
        Offsets(groups=[GroupOffsets(group="g", topic="T", offsets=[(0, -1)])]),
    ],
)
def test_a_state_record_that_no_member_would_apply_is_not_written(record: AnyStateRecord) -> None:
    with pytest.raises(FormatError):
        state_records.encode(record)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b'{"v":1}', b'{"v":1,"kind":"later"}', b'{"v":1,"kind":"topicDeleted"}',
        b'{"v":2,"kind":"topicDeleted","topic":"T"}', b'{"v":1,"kind":7}',
        b'{"v":true,"kind":"topicDeleted","topic":"T"}', b'{v:1,kind:"topicDeleted",topic:"T"}',
        b'{"v":1,"kind":"topicDeleted","topic":"' + b"x" * (1 << 20) + b'"}',
    ],
)  # fmt: skip
def test_a_record_of_an_unknown_form_is_refused(body: bytes) -> None:
    with pytest.raises(FormatError):
        state_records.decode(body)


# Frames of answers.


@given(
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(0, 29),
    st.builds(SendAnswerFields, msg_id=TEXTS, queue_id=INT, queue_offset=INT, transaction_id=TEXTS)
    | st.builds(OffsetAnswerFields, offset=st.none() | INT),
    st.none() | st.text(max_size=20),
    st.binary(max_size=50),
)
def test_an_answer_is_the_frame_that_the_general_encoder_writes(
    opaque: int, code: int, fields: ExtFields, remark: str | None, body: bytes
) -> None:
    raw = encode_answer(opaque, code, fields, remark=remark, body=body)

    assert raw == frames.encode(
        frames.RemotingCommand(
            code=code,
            flag=frames.RESPONSE_FLAG,
            opaque=opaque,
            ext_fields=fields.to_ext(),
            remark=remark,
            body=body,
            version=VERSION_5_3_3,
        )
    )


def test_an_answer_that_no_client_would_read_is_not_written() -> None:
    with pytest.raises(ValueError, match="exceeds"):
        encode_answer(1, 0, body=bytes(frames.FRAME_BYTES_MAX))


def test_a_state_record_has_the_fields_of_every_kind_in_camel_case() -> None:
    plain = msgspec.json.decode(state_records.encode(GroupDeleted(group="g", clean_offset=True)))

    assert plain == {"v": 1, "kind": "groupDeleted", "group": "g", "cleanOffset": True}
