"""Clients that join and leave consumer groups, as the members of a broker see them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_broker.door.consumer_groups.group_clients import ids_changed
from dledger_broker_client.client import BrokerClient, bodies, consumer
from dledger_formats.protocol.frames import FrameDecoder
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.consumer_groups import CheckClient, Subscription
from dledger_formats.rocketmq.names import TopicRoute
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

Code = RequestCode
Answer = ResponseCode
GOLDEN = Path(__file__).parents[1] / "formats" / "golden" / "rocketmq-frames.jsonl"


@pytest.fixture
def other(broker: BrokerGroup) -> Iterator[BrokerClient]:
    """A second connection to the broker."""
    with BrokerClient(broker.broker_addresses["n0"]) as connected:
        yield connected


def leave(client: BrokerClient, client_id: str, group: str) -> ResponseCode:
    ext = {"clientID": client_id, "consumerGroup": group}
    return ResponseCode(client.ask(Code.UNREGISTER_CLIENT, ext).code)


def test_a_client_is_listed_once_its_heartbeat_is_answered(
    client: BrokerClient, other: BrokerClient
) -> None:
    assert client.client_ids("listed") == []

    assert client.beat("c2", consumer("listed", "t")).code == Answer.SUCCESS
    assert other.beat("c1", consumer("listed", "t")).code == Answer.SUCCESS

    assert client.client_ids("listed") == other.client_ids("listed") == ["c1", "c2"]


def test_a_client_with_two_connections_is_listed_once(
    client: BrokerClient, other: BrokerClient
) -> None:
    client.beat("c1", consumer("twice", "t"))
    other.beat("c1", consumer("twice", "t"))

    assert client.client_ids("twice") == ["c1"]


def test_a_group_gets_its_retry_topic_with_the_first_heartbeat(client: BrokerClient) -> None:
    client.beat("c1", consumer("retrying", "t"))

    answer = client.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%retrying"})
    [queues] = TopicRoute.from_json(answer.body).queue_datas
    assert (queues.read_queue_nums, queues.write_queue_nums, queues.perm) == (1, 1, 6)


def test_all_clients_are_told_when_one_joins_and_when_one_leaves(
    client: BrokerClient, other: BrokerClient
) -> None:
    client.beat("c1", consumer("told", "t"))
    assert client.request().ext_fields == {"consumerGroup": "told"}

    other.beat("c2", consumer("told", "t"))
    joined = client.request()
    assert joined.code == Code.NOTIFY_CONSUMER_IDS_CHANGED
    assert joined.is_oneway
    assert other.request().ext_fields == {"consumerGroup": "told"}

    assert leave(other, "c2", "told") == Answer.SUCCESS
    assert client.request().ext_fields == {"consumerGroup": "told"}
    assert client.client_ids("told") == ["c1"]


def test_nobody_is_told_of_a_heartbeat_that_says_nothing_new(
    client: BrokerClient, other: BrokerClient
) -> None:
    client.beat("c1", consumer("quiet", "b", "a"))
    other.beat("c2", consumer("quiet", "a"))
    client.client_ids("quiet")
    client.requests.clear()
    other.beat("c2", consumer("quiet", "a"))
    client.beat("c1", consumer("quiet", "a", "b"))

    client.client_ids("quiet")
    assert client.requests == []


def test_a_changed_subscription_is_told_to_the_group(
    client: BrokerClient, other: BrokerClient
) -> None:
    client.beat("c1", consumer("changing", "t"))
    client.request()

    client.beat("c1", consumer("changing", "t", "u", version=2))

    assert client.request().ext_fields == {"consumerGroup": "changing"}


def test_the_notice_has_the_fields_that_javas_broker_sends() -> None:
    recorded = [
        command
        for line in GOLDEN.read_text().splitlines()
        if json.loads(line)["name"].startswith("notify-consumer-ids")
        for command in FrameDecoder().feed(bytes.fromhex(json.loads(line)["hex"]))
    ]
    assert recorded

    for golden in recorded:
        assert golden.ext_fields is not None
        [ours] = FrameDecoder().feed(ids_changed(golden.ext_fields["consumerGroup"], 1))
        assert (ours.code, ours.flag, ours.ext_fields, ours.body) == (
            golden.code, golden.flag, golden.ext_fields, golden.body,
        )  # fmt: skip


def test_a_client_whose_connection_breaks_leaves_its_groups(
    client: BrokerClient, broker: BrokerGroup
) -> None:
    client.beat("c1", consumer("broken", "t"))
    with BrokerClient(broker.broker_addresses["n0"]) as breaking:
        breaking.beat("c2", consumer("broken", "t"))
        assert client.client_ids("broken") == ["c1", "c2"]

    wait_for(lambda: client.client_ids("broken") == ["c1"], "the other client is gone")


def test_a_client_that_connects_again_at_once_stays_in_its_group(
    client: BrokerClient, broker: BrokerGroup
) -> None:
    client.beat("c1", consumer("again", "t"))
    with BrokerClient(broker.broker_addresses["n0"]) as first:
        first.beat("c2", consumer("again", "t"))
    with BrokerClient(broker.broker_addresses["n0"]) as second:
        second.beat("c2", consumer("again", "t"))
        with BrokerClient(broker.broker_addresses["n0"]) as third:
            third.beat("c3", consumer("again", "t"))
        wait_for(lambda: "c3" not in client.client_ids("again"), "a later one is gone")
        assert client.client_ids("again") == ["c1", "c2"]


def test_a_client_that_leaves_and_joins_at_once_is_a_member(client: BrokerClient) -> None:
    client.beat("c1", consumer("hasty", "t"))
    ext = {"clientID": "c1", "consumerGroup": "hasty"}
    left = client.begin(Code.UNREGISTER_CLIENT, ext)
    assert client.beat("c1", consumer("hasty", "t")).code == Answer.SUCCESS

    client.answer(left)
    assert client.client_ids("hasty") == ["c1"]


def test_a_pull_without_a_subscription_means_that_of_the_heartbeat(client: BrokerClient) -> None:
    for tag in ("red", "blue", "green"):
        client.send("subscribed", tag.encode(), i=f"TAGS\x01{tag}\x02")
    client.wait_until_visible("subscribed", 3)
    client.beat("c1", consumer("pushed", "subscribed", tags="red || green"))

    found = client.pull("subscribed", consumerGroup="pushed", sysFlag="0")

    assert bodies(found) == [b"red", b"green"]


def test_a_client_that_has_just_connected_again_pulls_what_its_group_wants(
    client: BrokerClient, other: BrokerClient
) -> None:
    client.send("reconnected", b"x")
    client.wait_until_visible("reconnected", 1)
    client.beat("c1", consumer("reconnecting", "reconnected"))

    found = other.pull("reconnected", consumerGroup="reconnecting", sysFlag="0")

    assert bodies(found) == [b"x"]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"topic": "unwanted"}, Answer.SUBSCRIPTION_NOT_EXIST),
        ({"consumerGroup": "strangers"}, Answer.SUBSCRIPTION_NOT_EXIST),
        ({"subVersion": "2"}, Answer.SUBSCRIPTION_NOT_LATEST),
    ],
)
def test_a_pull_whose_subscription_is_not_known_is_refused(
    client: BrokerClient, changed: dict[str, str], code: ResponseCode
) -> None:
    for topic in ("wanted", "unwanted"):
        client.send(topic)
        client.wait_until_visible(topic, 1)
    client.beat("c1", consumer("wanting", "wanted"))

    answer = client.pull("wanted", **{"consumerGroup": "wanting", "sysFlag": "0"} | changed)

    assert answer.code == code
    assert "heartbeat" in (answer.remark or "")


def sql(topic: str) -> Subscription:
    return Subscription(topic=topic, sub_string="a > 1", sub_version=1, expression_type="SQL92")


def test_a_subscription_by_sql_is_refused_and_one_by_tags_is_not(client: BrokerClient) -> None:
    def check(subscription: Subscription) -> int:
        body = CheckClient(client_id="c1", group="g", subscription_data=subscription)
        return client.ask(Code.CHECK_CLIENT_CONFIG, body=body.to_json()).code

    assert check(consumer("g", "t").subscription_data_set[0]) == Answer.SUCCESS
    assert check(sql("t")) == Answer.INVALID_PARAMETER


def beat_until_taken(client: BrokerClient, client_id: str) -> None:
    """Send heartbeats as clients do, until one succeeds: a new leader may not be ready yet."""
    wait_for(
        lambda: client.beat(client_id, consumer("known", "t")).code == Answer.SUCCESS,
        f"the heartbeat of {client_id} is taken",
    )


def wait_until_known(client: BrokerClient, *ids: str) -> None:
    wait_for(lambda: client.client_ids("known") == list(ids), f"the clients are {ids}")


@pytest.mark.group
def test_the_clients_of_a_group_are_known_to_every_member_and_to_the_next_leader(
    tmp_path: Path,
) -> None:
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        others = [member for member in group.peers if member != leader]
        lines = {member: BrokerClient(group.broker_addresses[member]) for member in group.peers}
        with lines[leader], lines[others[0]], lines[others[1]]:
            for member in (*others, leader):
                beat_until_taken(lines[member], "c1")
            for member in others:
                wait_until_known(lines[member], "c1")
                lines[member].requests.clear()

            group.kill(leader)
            wait_for(lambda: group.master() != leader, "another member leads")
            for member in others:
                assert lines[member].client_ids("known") == ["c1"]
            beat_until_taken(lines[group.master()], "c2")
            for member in others:
                assert lines[member].request().ext_fields == {"consumerGroup": "known"}
                wait_until_known(lines[member], "c1", "c2")
