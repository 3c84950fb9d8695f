"""Requests of clients, answered by one broker process."""

import contextlib
import socket
import time

import pytest

from dledger_broker_client.client import (
    BrokerClient,
    bodies,
    messages,
    number,
    pull_ext,
    send_ext,
)
from dledger_client.client import DLedgerClient
from dledger_client.errors import RefusedError
from dledger_formats.peers import split_address
from dledger_formats.protocol.frames import ONEWAY_FLAG, RemotingCommand
from dledger_formats.rocketmq import message_batch
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.message_batch import BatchMessage
from dledger_formats.rocketmq.names import ClusterInfo, TopicList, TopicRoute
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

Code = RequestCode
Answer = ResponseCode
DELAYED_BATCH = message_batch.encode([BatchMessage(0, b"late", b"DELAY\x011\x02")])
SUSPEND = "6"
"""The pull has its subscription, and may be held."""


def offset_ext(topic: str, **more: str) -> dict[str, str]:
    return {"topic": topic, "queueId": "0", **more}


def test_a_message_comes_back_as_it_was_sent(client: BrokerClient) -> None:
    sent = client.send("plain", b"hello", h="7", j="3", i="TAGS\x01red\x02UNIQ_KEY\x01U1\x02")
    client.wait_until_visible("plain", 1)
    found = client.pull("plain")

    assert sent.code == Answer.SUCCESS
    assert sent.ext_fields is not None
    assert sent.ext_fields["transactionId"] == "U1"
    assert found.code == Answer.SUCCESS
    [record] = messages(found)
    assert (record.body, record.flag, record.reconsume_times) == (b"hello", 7, 3)
    assert record.properties == b"TAGS\x01red\x02UNIQ_KEY\x01U1\x02"
    assert sent.ext_fields["msgId"].endswith(f"{record.physical_offset:016X}")
    assert record.born_timestamp == 1_795_306_882_675
    assert abs(record.store_timestamp - time.time() * 1000) < 60_000


def test_messages_in_flight_get_offsets_in_the_order_in_which_they_came(
    client: BrokerClient,
) -> None:
    opaques = [client.begin(Code.SEND_MESSAGE_V2, send_ext("order"), b"%d" % n) for n in range(500)]
    offsets = [number(client.answer(opaque), "queueOffset") for opaque in opaques]

    assert offsets == list(range(500))
    client.wait_until_visible("order", 500)
    pulled: list[bytes] = []
    while len(pulled) < 500:
        pulled += bodies(client.pull("order", len(pulled)))
    assert pulled == [b"%d" % n for n in range(500)]


def test_a_batch_is_stored_whole_at_consecutive_offsets(client: BrokerClient) -> None:
    batch = message_batch.encode(BatchMessage(0, b"%d" % n, b"") for n in range(20))
    client.send("batch", b"first")

    sent = client.ask(Code.SEND_BATCH_MESSAGE, send_ext("batch", m="true"), batch)

    assert number(sent, "queueOffset") == 1
    assert sent.ext_fields is not None
    assert len(sent.ext_fields["msgId"].split(",")) == 20
    client.wait_until_visible("batch", 21)
    found = client.pull("batch", 1)
    assert [record.queue_offset for record in messages(found)] == list(range(1, 21))


def test_a_one_way_send_is_stored_and_not_answered(client: BrokerClient) -> None:
    client.begin(Code.SEND_MESSAGE_V2, send_ext("one-way"), b"quiet", flag=ONEWAY_FLAG)

    found = wait_for(lambda: bodies(client.pull("one-way")), "the message is stored", timeout_s=10)

    assert found == [b"quiet"]


def test_a_held_pull_is_answered_once_a_message_arrives(
    client: BrokerClient, broker: BrokerGroup
) -> None:
    client.send("held", b"first")
    client.wait_until_visible("held", 1)
    opaque = client.begin(
        Code.PULL_MESSAGE,
        pull_ext("held", 1, sysFlag=SUSPEND, suspendTimeoutMillis="20000"),
    )
    with BrokerClient(broker.broker_addresses["n0"]) as other:
        wait_for(
            lambda: b"dledger_broker_held_pulls 1.0" in broker.get("n0", "/metrics")[1],
            "the pull is held",
        )
        begun_s = time.monotonic()
        other.send("held", b"second")

    assert bodies(client.answer(opaque)) == [b"second"]
    assert time.monotonic() - begun_s < 5


def test_a_held_pull_ends_after_its_time_with_nothing_found(client: BrokerClient) -> None:
    client.send("held-long", b"first")
    client.wait_until_visible("held-long", 1)

    answer = client.pull("held-long", 1, sysFlag=SUSPEND, suspendTimeoutMillis="300")

    assert answer.code == Answer.PULL_NOT_FOUND
    assert number(answer, "nextBeginOffset") == 1


def test_an_offset_behind_the_end_is_corrected_to_the_first_one_by_the_leader(
    client: BrokerClient,
) -> None:
    client.send("moved")
    client.wait_until_visible("moved", 1)

    answer = client.pull("moved", 17, sysFlag=SUSPEND, suspendTimeoutMillis="20000")

    assert answer.code == Answer.PULL_OFFSET_MOVED
    assert number(answer, "nextBeginOffset") == 0


def test_a_pull_gets_the_wanted_tags_and_skips_the_others(client: BrokerClient) -> None:
    for tag in ("red", "blue", "red", "green"):
        client.send("tags", tag.encode(), i=f"TAGS\x01{tag}\x02")

    client.wait_until_visible("tags", 4)
    assert bodies(client.pull("tags", subscription="red || green")) == [b"red", b"red", b"green"]
    none = client.pull("tags", subscription="black")
    assert none.code == Answer.PULL_RETRY_IMMEDIATELY
    assert number(none, "nextBeginOffset") == 4


def test_a_large_answer_is_divided(client: BrokerClient) -> None:
    for _ in range(5):
        client.send("large", bytes(100_000))

    client.wait_until_visible("large", 5)
    assert len(bodies(client.pull("large"))) == 2
    assert len(bodies(client.pull("large", maxMsgBytes="1"))) == 1


def test_queue_offsets_and_times_are_looked_up(client: BrokerClient) -> None:
    for n in range(5):
        client.send("looked-up", b"%d" % n)
    client.wait_until_visible("looked-up", 5)
    times = [record.store_timestamp for record in messages(client.pull("looked-up"))]
    first = times.index(times[3])

    ext = offset_ext("looked-up", timestamp=str(times[3]))
    assert number(client.ask(Code.SEARCH_OFFSET_BY_TIMESTAMP, ext), "offset") == first
    late = offset_ext("looked-up", timestamp=str(times[4] + 1))
    assert number(client.ask(Code.SEARCH_OFFSET_BY_TIMESTAMP, late), "offset") == 5
    assert number(client.ask(Code.GET_MAX_OFFSET, offset_ext("looked-up")), "offset") == 5
    assert number(client.ask(Code.GET_MIN_OFFSET, offset_ext("looked-up")), "offset") == 0
    earliest = client.ask(Code.GET_EARLIEST_MSG_STORETIME, offset_ext("looked-up"))
    assert number(earliest, "timestamp") == times[0]


def test_a_group_continues_at_the_offset_that_it_committed(client: BrokerClient) -> None:
    client.send("committed")
    client.wait_until_visible("committed", 1)
    ext = offset_ext("committed", consumerGroup="g1")
    plainly = ext | {"setZeroIfNotFound": "false"}

    assert client.ask(Code.QUERY_CONSUMER_OFFSET, plainly).code == Answer.QUERY_NOT_FOUND
    done = client.ask(Code.UPDATE_CONSUMER_OFFSET, ext | {"commitOffset": "1"})
    assert done.code == Answer.SUCCESS, done.remark
    assert number(client.ask(Code.QUERY_CONSUMER_OFFSET, ext), "offset") == 1
    client.begin(Code.UPDATE_CONSUMER_OFFSET, ext | {"commitOffset": "0"}, flag=ONEWAY_FLAG)
    assert number(client.ask(Code.QUERY_CONSUMER_OFFSET, ext), "offset") == 0


def test_a_new_group_begins_with_the_first_message_of_a_young_queue(client: BrokerClient) -> None:
    """Java's client would else begin at the end, and skip what was sent before."""
    for _ in range(3):
        client.send("young")
    client.wait_until_visible("young", 3)

    def query(topic: str, **more: str) -> RemotingCommand:
        return client.ask(
            Code.QUERY_CONSUMER_OFFSET, offset_ext(topic, consumerGroup="new", **more)
        )

    assert number(query("young"), "offset") == 0
    assert number(query("young", setZeroIfNotFound="true"), "offset") == 0
    assert query("young", setZeroIfNotFound="false").code == Answer.QUERY_NOT_FOUND
    assert query("unknown-topic").code == Answer.QUERY_NOT_FOUND


def test_the_broker_answers_as_a_name_server(client: BrokerClient, broker: BrokerGroup) -> None:
    client.send("routed")
    client.wait_until_visible("routed", 1)
    address = broker.broker_addresses["n0"]

    route = TopicRoute.from_json(client.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "routed"}).body)
    info = ClusterInfo.from_json(client.ask(Code.GET_BROKER_CLUSTER_INFO).body)
    topics = TopicList.from_json(client.ask(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body)

    assert route.broker_datas[0].broker_addrs == {"0": address}
    assert route.queue_datas[0].write_queue_nums == 4
    assert info.broker_addr_table["g"].broker_addrs == {"0": address}
    assert {"routed", "TBW102"} <= set(topics.topic_list)
    unknown = client.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "nowhere"})
    assert unknown.code == Answer.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("changed", "body", "code", "words"),
    [
        ({"b": "bad topic"}, b"", Answer.INVALID_PARAMETER, "is no name of a topic"),
        ({"b": "t" * 128}, b"", Answer.INVALID_PARAMETER, "is no name of a topic"),
        ({"b": "rmq_sys_broker_state"}, b"", Answer.INVALID_PARAMETER, "of the system"),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, b"", Answer.INVALID_PARAMETER, "of the system"),
        ({"b": "unknown", "c": "else"}, b"", Answer.TOPIC_NOT_EXIST, "does not exist"),
        ({"e": "4"}, b"", Answer.INVALID_PARAMETER, "has no queue 4"),
        ({"e": "x"}, b"", Answer.SYSTEM_ERROR, "e"),
        ({"e": "99999999999"}, b"", Answer.SYSTEM_ERROR, "e"),
        ({}, bytes((4 << 20) + 1), Answer.MESSAGE_ILLEGAL, "4194305 bytes"),
        ({}, bytes(1 << 20), Answer.MESSAGE_ILLEGAL, "with its properties"),
        ({"i": "K\x01" + "v" * 32767}, b"", Answer.MESSAGE_ILLEGAL, "properties"),
        ({"i": "DELAY\x01x\x02"}, b"", Answer.MESSAGE_ILLEGAL, "DELAY"),
        ({"i": "DELAY\x01" + "9" * 10 + "\x02"}, b"", Answer.MESSAGE_ILLEGAL, "DELAY"),
        ({"i": "DELAY\x013\x02K\x01" + "v" * 32740}, b"", Answer.MESSAGE_ILLEGAL, "properties"),
        ({"i": "TIMER_DELAY_MS\x013\x02"}, b"", Answer.MESSAGE_ILLEGAL, "TIMER_DELAY_MS"),
        ({"i": "TRAN_MSG\x01true\x02"}, b"", Answer.NO_PERMISSION, "transactions"),
        ({"f": "4"}, b"", Answer.NO_PERMISSION, "transactions"),
        ({"m": "true"}, b"no batch", Answer.MESSAGE_ILLEGAL, "batch"),
        ({"m": "true"}, DELAYED_BATCH, Answer.MESSAGE_ILLEGAL, "batch with delayed"),
    ],
)
def test_a_bad_send_is_refused_in_words_and_changes_nothing(
    client: BrokerClient, changed: dict[str, str], body: bytes, code: ResponseCode, words: str
) -> None:
    before = number(client.send("sound"), "queueOffset")

    answer = client.send("sound", body, **changed)

    assert answer.code == code, answer.remark
    assert words in (answer.remark or "")
    assert number(client.send("sound"), "queueOffset") == before + 1


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({"topic": "unknown"}, Answer.TOPIC_NOT_EXIST, "does not exist"),
        ({"queueId": "4"}, Answer.INVALID_PARAMETER, "no queue 4"),
        ({"queueId": "-1"}, Answer.INVALID_PARAMETER, "no queue -1"),
        ({"queueOffset": "-1"}, Answer.INVALID_PARAMETER, "below 0"),
        ({"queueOffset": "1.0"}, Answer.SYSTEM_ERROR, "queueOffset"),
        ({"expressionType": "SQL92"}, Answer.INVALID_PARAMETER, "by tags only"),
        ({"sysFlag": "0"}, Answer.SUBSCRIPTION_NOT_EXIST, "send a heartbeat first"),
        ({"subscription": "||"}, Answer.SUBSCRIPTION_PARSE_FAILED, "tags"),
    ],
)
def test_a_bad_pull_is_refused_in_words(
    client: BrokerClient, changed: dict[str, str], code: ResponseCode, words: str
) -> None:
    client.send("pulled")
    client.wait_until_visible("pulled", 1)

    answer = client.pull("pulled", **changed)

    assert answer.code == code, answer.remark
    assert words in (answer.remark or "")
    assert bodies(client.pull("pulled"))


def test_requests_that_are_not_known_or_lack_a_field_leave_the_connection_open(
    client: BrokerClient,
) -> None:
    unknown = client.ask(324)
    lacking = client.ask(Code.GET_MAX_OFFSET, {"topic": "sound"})
    broken = client.ask(Code.HEART_BEAT, body=b'{"clientID":')
    negative = client.ask(
        Code.UPDATE_CONSUMER_OFFSET,
        offset_ext("rmq_sys_broker_state", consumerGroup="g1", commitOffset="-1"),
    )

    assert unknown.code == Answer.REQUEST_CODE_NOT_SUPPORTED
    assert lacking.code == broken.code == Answer.SYSTEM_ERROR
    assert "queueId" in (lacking.remark or "")
    assert negative.code == Answer.INVALID_PARAMETER
    assert client.send("sound").code == Answer.SUCCESS


def test_a_frame_with_a_broken_header_ends_its_connection_and_no_other(
    client: BrokerClient, broker: BrokerGroup
) -> None:
    """Where its header is broken, nothing names the request that an answer would be for."""
    header = b'{"code":310,"opaque":'
    frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    host, port = split_address(broker.broker_addresses["n0"])
    with socket.create_connection((host, port), timeout=30) as broken:
        broken.sendall(frame)
        with contextlib.suppress(ConnectionResetError):
            assert broken.recv(100) == b""

    assert client.send("sound").code == Answer.SUCCESS


async def test_clients_of_dledger_cannot_append_to_a_brokers_log(broker: BrokerGroup) -> None:
    async with DLedgerClient(broker.servers, "g") as plain:
        with pytest.raises(RefusedError) as refused:
            await plain.append(b"no message")

    assert "UNSUPPORTED" in str(refused.value)
