"""Clients that read their answers more slowly than a member reads messages."""

from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient, messages, pull_ext
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_node.remoting.read_turns import READS_WAITING_MAX
from tools.groups.broker_group import BrokerGroup
from tools.groups.turns import metrics
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

QUEUES = range(READS_WAITING_MAX)
BODY = bytes(4_000_000)
"""The kernel and the limit on unread answers together take fewer than eight of these."""
HELD = {"sysFlag": "6", "suspendTimeoutMillis": "20000"}


def test_a_client_with_a_slow_line_gets_long_messages_of_many_queues_over_one_connection(
    tmp_path: Path,
) -> None:
    """It was cut off, and again whenever it came back: eight threads' answers were written."""
    with BrokerGroup(tmp_path, 1, segment_size_bytes=64 << 20) as group:
        address = group.broker_addresses[group.master()]
        with BrokerClient(address) as slow, BrokerClient(address) as quick:
            for queue in QUEUES:
                sent = quick.send("long", BODY, d=str(len(QUEUES)), e=str(queue))
                assert sent.code == ResponseCode.SUCCESS, sent.remark
            pulls = [pull_ext("long", 0, queueId=str(queue), **HELD) for queue in QUEUES]
            opaques = slow.begin_all(*((RequestCode.PULL_MESSAGE, pull, b"") for pull in pulls))
            wait_for(
                lambda: metrics(group, "n0")["dledger_node_buffered_bytes"] > 1 << 20,
                "answers are unread",
            )
            for pull in pulls:  # threads have read for the slow client by these answers
                assert quick.ask(RequestCode.PULL_MESSAGE, pull).code == ResponseCode.SUCCESS

            answers = [slow.answer(opaque) for opaque in opaques]

    assert [messages(answer)[0].body for answer in answers] == [BODY] * len(QUEUES)
