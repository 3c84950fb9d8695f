"""Heartbeats with subscriptions that a broker refuses: everything else in them counts."""

from collections.abc import Sequence

import msgspec
import pytest

from dledger_broker_client.client import BrokerClient, bodies, consumer
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.consumer_groups import Consumer, Subscription

Answer = ResponseCode
SQL = Subscription(topic="s", sub_string="a > 1", sub_version=1, expression_type="SQL92")


def consumer_of(group: str, *subscriptions: Subscription) -> Consumer:
    return msgspec.structs.replace(consumer(group), subscription_data_set=list(subscriptions))


def tags(topic: str, text: str = "*") -> Subscription:
    return Subscription(topic=topic, sub_string=text, sub_version=1)


@pytest.mark.parametrize("client_id", ["", "c" * 256])
def test_nobody_joins_whose_client_id_is_refused(client: BrokerClient, client_id: str) -> None:
    answer = client.beat(client_id, consumer("nameless", "t"))

    assert answer.code != Answer.SUCCESS
    assert "client id" in (answer.remark or "")
    assert client.client_ids("nameless") == []


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (consumer("bad group", "t"), ["no name of a consumer group"]),
        (consumer("g" * 121, "t"), ["no name of a consumer group"]),
        (consumer("worded", "bad topic"), ["worded", "is not the name of a topic"]),
        (consumer("tagless", "t", tags="||"), ["tagless", "tags"]),
        (consumer_of("by-sql", SQL), ["by-sql", "by tags only"]),
        (consumer_of("by-sql-2", SQL, tags("%RETRY%by-sql-2")), ["by-sql-2", "by tags only"]),
    ],
)
def test_a_refused_consumer_keeps_its_client_out_of_no_other_group(
    client: BrokerClient, refused: Consumer, words: Sequence[str]
) -> None:
    group = f"beside-{refused.group_name[:9].replace(' ', '-')}"

    answer = client.beat("c1", consumer(group, "t"), refused)

    assert answer.code != Answer.SUCCESS
    assert all(word in (answer.remark or "") for word in words)
    assert client.client_ids(group) == ["c1"]
    assert client.client_ids(refused.group_name) == []


def test_a_consumer_that_adds_a_refused_subscription_keeps_the_others(
    client: BrokerClient,
) -> None:
    client.send("a", b"x")
    client.wait_until_visible("a", 1)
    client.beat("c1", consumer_of("adding", tags("a")))

    for _ in range(2):
        answer = client.beat("c1", consumer_of("adding", SQL, tags("a")))
        assert answer.code == Answer.INVALID_PARAMETER

    assert client.client_ids("adding") == ["c1"]
    assert bodies(client.pull("a", consumerGroup="adding", sysFlag="0")) == [b"x"]
    refused = client.pull("s", consumerGroup="adding", sysFlag="0")
    assert refused.code != Answer.SUCCESS


def test_a_client_joins_again_once_its_subscription_is_sound(client: BrokerClient) -> None:
    client.beat("c1", consumer_of("mended", SQL))
    assert client.client_ids("mended") == []

    assert client.beat("c1", consumer_of("mended", tags("s"))).code == Answer.SUCCESS
    assert client.client_ids("mended") == ["c1"]
