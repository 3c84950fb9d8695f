"""What the next leader knows: topics, groups, offsets and delay positions, all of them at once."""

from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient, number, send_ext
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_formats.rocketmq.topics import CreateTopicFields
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

Code = RequestCode
TABLES = {
    "topics": Code.GET_ALL_TOPIC_CONFIG,
    "groups": Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    "consumer offsets": Code.GET_ALL_CONSUMER_OFFSET,
    "delay positions": Code.GET_ALL_DELAY_OFFSET,
}
READERS = 5
MESSAGES = 12


def fill(client: BrokerClient) -> None:
    """Change all tables; each answer says that a quorum holds the change."""
    fields = CreateTopicFields(
        topic="made", read_queue_nums=3, write_queue_nums=2, perm=6,
        topic_filter_type="SINGLE_TAG", default_topic="TBW102", order=False, topic_sys_flag=0,
    )  # fmt: skip
    assert client.ask(Code.UPDATE_AND_CREATE_TOPIC, fields.to_ext()).code == ResponseCode.SUCCESS
    for _ in range(MESSAGES):
        client.send("made", queue=0)
    for reader in range(READERS):
        config = SubscriptionGroup(group_name=f"g{reader}", retry_max_times=reader)
        answer = client.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.to_json())
        assert answer.code == ResponseCode.SUCCESS
        ext = {"consumerGroup": f"g{reader}", "topic": "made", "queueId": "0"}
        answer = client.ask(Code.UPDATE_CONSUMER_OFFSET, ext | {"commitOffset": str(7 + reader)})
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    answer = client.ask(Code.SEND_MESSAGE_V2, send_ext("made", i="DELAY\x015\x02"), b"delayed")
    assert answer.code == ResponseCode.SUCCESS
    client.wait_until_visible("made", MESSAGES)


def tables(client: BrokerClient) -> dict[str, bytes]:
    return {name: client.ask(code).body for name, code in TABLES.items()}


def test_the_next_leader_has_all_topics_groups_offsets_and_delay_positions(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        with BrokerClient(group.broker_addresses[leader]) as client:
            fill(client)
            before = tables(client)
        group.kill(leader)
        with BrokerClient(group.broker_addresses[group.master()]) as client:
            ext = {"consumerGroup": "g4", "topic": "made", "queueId": "0"}
            offset = number(client.ask(Code.QUERY_CONSUMER_OFFSET, ext), "offset")
            after = tables(client)

    assert offset == 11, "a leader answers once it has applied everything before its term"
    assert after == before


def test_a_one_way_commit_that_another_member_has_applied_outlives_the_leader(
    tmp_path: Path,
) -> None:
    """When it is written is tested in test_times_of_offset_commits.py."""
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        with BrokerClient(group.broker_addresses[leader]) as client:
            fill(client)
            ext = {"consumerGroup": "g0", "topic": "made", "queueId": "0"}
            client.begin(Code.UPDATE_CONSUMER_OFFSET, ext | {"commitOffset": "12"}, flag=2)
            other = next(member for member in group.peers if member != leader)
            with BrokerClient(group.broker_addresses[other]) as follower:
                wait_for(
                    lambda: b":12" in follower.ask(Code.GET_ALL_CONSUMER_OFFSET).body,
                    "the commit is applied at another member",
                    timeout_s=10,
                )
        group.kill(leader)
        with BrokerClient(group.broker_addresses[group.master()]) as client:
            found = number(client.ask(Code.QUERY_CONSUMER_OFFSET, ext), "offset")

    assert found == 12
