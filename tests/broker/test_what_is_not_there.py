"""Requests of what this broker has not: refused in words, never half done."""

import pytest

from dledger_broker_client.client import BrokerClient, bodies, number, send_ext
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode

NOT_THERE = {
    "QUERY_MESSAGE": 12,
    "UPDATE_AND_CREATE_TOPIC_LIST": 18,
    "UPDATE_BROKER_CONFIG": 25,
    "GET_BROKER_CONFIG": 26,
    "END_TRANSACTION": 37,
    "CHECK_TRANSACTION_STATE": 39,
    "PUT_KV_CONFIG": 100,
    "GET_KV_CONFIG": 101,
    "GET_TOPIC_STATS_INFO": 202,
    "GET_CONSUMER_CONNECTION_LIST": 203,
    "GET_PRODUCER_CONNECTION_LIST": 204,
    "WIPE_WRITE_PERM_OF_BROKER": 205,
    "GET_CONSUME_STATS": 208,
    "RESET_CONSUMER_CLIENT_OFFSET": 220,
    "GET_CONSUMER_STATUS_FROM_CLIENT": 221,
    "INVOKE_BROKER_TO_RESET_OFFSET": 222,
    "GET_CONSUMER_RUNNING_INFO": 307,
    "CONSUME_MESSAGE_DIRECTLY": 309,
    "CLONE_GROUP_OFFSET": 314,
    "POP_MESSAGE": 200050,
    "ACK_MESSAGE": 200051,
    "PEEK_MESSAGE": 200052,
    "CHANGE_MESSAGE_INVISIBLETIME": 200053,
    "NOTIFICATION": 200054,
    "SEND_REPLY_MESSAGE": 324,
    "SEND_REPLY_MESSAGE_V2": 325,
    "PUSH_REPLY_MESSAGE_TO_CLIENT": 326,
}


@pytest.mark.parametrize("code", NOT_THERE.values(), ids=NOT_THERE.keys())
def test_a_request_of_what_is_not_there_is_refused_in_words_and_stores_nothing(
    client: BrokerClient, code: int
) -> None:
    before = number(client.send("untouched"), "queueOffset")

    refused = client.ask(code, send_ext("untouched"), b"a body")

    assert refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert str(code) in (refused.remark or "")
    assert number(client.send("untouched"), "queueOffset") == before + 1


def test_a_request_for_a_reply_is_a_message_like_any_other(client: BrokerClient) -> None:
    """The reply itself is refused, so the one that asks gets its time-out, in words."""
    properties = "REPLY_TO_CLIENT\x01c1\x02CORRELATION_ID\x01x\x02TTL\x013000\x02"
    sent = client.ask(RequestCode.SEND_MESSAGE_V2, send_ext("asked", i=properties), b"a question")
    client.wait_until_visible("asked", 1)

    assert sent.code == ResponseCode.SUCCESS
    assert bodies(client.pull("asked")) == [b"a question"]


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRACE_TOPIC", "BenchmarkTest"])
def test_a_message_to_a_topic_that_rocketmq_has_for_itself_is_refused_in_words(
    client: BrokerClient, topic: str
) -> None:
    refused = client.send(topic)

    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "use another one" in (refused.remark or "")


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ("TIMER_DELAY_SEC\x013\x02", "TIMER_DELAY_SEC"),
        ("TIMER_DELIVER_MS\x019\x02", "TIMER_DELIVER_MS"),
        ("TIMER_DELAY_MS\x013\x02", "TIMER_DELAY_MS"),
    ],
)
def test_a_message_with_a_timer_is_refused_in_words(
    client: BrokerClient, properties: str, words: str
) -> None:
    refused = client.send("timed", i=properties)

    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert words in (refused.remark or "")
