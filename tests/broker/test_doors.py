"""Members that do not lead, as the doors of clients: what they pass on, and through a failover."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_broker_client import judge
from dledger_broker_client.client import BrokerClient, consumer, number, send_ext
from dledger_broker_client.sender import SENDS, Sender
from dledger_formats.protocol.frames import ONEWAY_FLAG
from dledger_formats.rocketmq import message_batch
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.message_batch import BatchMessage
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

Code = RequestCode


def doors_of(group: BrokerGroup, leader: str) -> list[str]:
    return [member for member in group.peers if member != leader]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerGroup]:
    """Three members that no test stops."""
    with BrokerGroup(tmp_path_factory.mktemp("doors")) as running:
        running.master()
        yield running


@pytest.fixture
def door(group: BrokerGroup) -> Iterator[BrokerClient]:
    """A connection to a member that does not lead."""
    follower = doors_of(group, group.master())[0]
    with BrokerClient(group.broker_addresses[follower]) as client:
        yield client


def test_a_door_answers_a_send_with_the_place_of_the_message(door: BrokerClient) -> None:
    first, second = door.send("through", b"one", i="UNIQ_KEY\x01U1\x02"), door.send("through")
    found = judge.all_bodies(door, "through", 2)

    assert first.ext_fields is not None
    assert first.ext_fields["transactionId"] == "U1"
    assert (number(first, "queueOffset"), number(second, "queueOffset")) == (0, 1)
    assert found == [b"one", b"body"]


def test_a_door_passes_batches_and_one_way_sends_on(door: BrokerClient) -> None:
    batch = message_batch.encode(BatchMessage(0, b"%d" % n, b"") for n in range(20))
    sent = door.ask(Code.SEND_BATCH_MESSAGE, send_ext("batched", m="true"), batch)
    door.begin(Code.SEND_MESSAGE_V2, send_ext("batched"), b"quiet", flag=ONEWAY_FLAG)
    found = judge.all_bodies(door, "batched", 21)

    assert sent.ext_fields is not None
    assert len(sent.ext_fields["msgId"].split(",")) == 20
    assert found == [*(b"%d" % n for n in range(20)), b"quiet"]


def test_a_refusal_of_the_leader_reaches_the_client(door: BrokerClient) -> None:
    refused = door.send("a bad name")

    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "is no name of a topic" in (refused.remark or "")


def test_a_door_passes_offsets_and_locks_on(door: BrokerClient, group: BrokerGroup) -> None:
    door.send("committed")
    with BrokerClient(group.broker_addresses[group.master()]) as leader:
        leader.beat("c1", consumer("readers", "committed"))
    key = {"topic": "committed", "queueId": "0", "consumerGroup": "readers"}
    committed = door.ask(Code.UPDATE_CONSUMER_OFFSET, key | {"commitOffset": "1"})
    door.begin(Code.UPDATE_CONSUMER_OFFSET, key | {"commitOffset": "0"}, flag=ONEWAY_FLAG)
    newest = door.ask(Code.QUERY_CONSUMER_OFFSET, key)

    assert committed.code == ResponseCode.SUCCESS
    assert number(newest, "offset") == 0, "the door keeps the order of a client's requests"
    assert door.lock("c1", "readers", "committed", 0) == [0]
    assert door.lock("c2", "readers", "committed", 0) == []
    assert door.unlock("c1", "readers", "committed", 0).code == ResponseCode.SUCCESS
    assert door.lock("c2", "readers", "committed", 0) == [0]


def test_a_door_passes_a_returned_message_on(door: BrokerClient, group: BrokerGroup) -> None:
    sent = door.send("returned")
    assert sent.ext_fields is not None
    with BrokerClient(group.broker_addresses[group.master()]) as leader:
        leader.beat("c1", consumer("returners", "returned"))
    ext = {
        "offset": str(int(sent.ext_fields["msgId"][-16:], 16)), "group": "returners",
        "delayLevel": "-1", "originTopic": "returned", "unitMode": "false",
    }  # fmt: skip

    assert door.ask(Code.CONSUMER_SEND_MSG_BACK, ext).code == ResponseCode.SUCCESS
    assert judge.all_bodies(door, "%DLQ%returners", 1) == [b"body"]


@pytest.mark.parametrize("end", ["killed", "stopped", "frozen"])
def test_sends_through_a_door_survive_the_leader_and_are_stored_once(
    tmp_path: Path, end: str
) -> None:
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        door = doors_of(group, leader)[0]
        with BrokerClient(group.broker_addresses[door]) as client:
            assert client.send("kept", b"first").code == ResponseCode.SUCCESS
        sender = Sender(group.broker_addresses[door], "kept")
        sender.start()
        sender.sent.wait(60)
        match end:
            case "killed":
                group.kill(leader)
            case "stopped":
                group.stop(leader)
            case "frozen":
                group.freeze(leader)
        sender.join(60)
        if end == "frozen":
            group.thaw(leader)
        with BrokerClient(group.broker_addresses[door]) as client:
            pulled = judge.all_bodies(client, "kept", judge.count_at_least(sender.answers))

    assert len(sender.answers) == SENDS
    judge.assert_answers_were_right(sender.answers, pulled)
    if end != "frozen":  # its loss is noticed by its silence
        assert len(judge.stored(sender.answers)) == SENDS


def test_sends_that_no_leader_can_take_are_refused_in_time(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        door, other = doors_of(group, leader)
        with BrokerClient(group.broker_addresses[door]) as client:
            client.send("lost")
            group.kill(leader)
            group.kill(other)
            wait_for(lambda: group.status(door).leader_id is None, "the leader is gone")
            refused = client.send("lost")

        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "no leader took the request in time" in (refused.remark or "")
