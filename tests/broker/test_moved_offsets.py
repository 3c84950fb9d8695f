"""Consumers of members that do not lead, whose next offset does not exist."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient, bodies, number, send_ext
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.settings import NodeSettings
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

BATCH = 100
RETENTION_BYTES = 1 << 17
ENOUGH_BYTES = 1 << 30
"""The leader's own limit is beyond what a test sends; without one it would not tell the others what
they may remove.
"""
HELD = {"sysFlag": "6", "suspendTimeoutMillis": "1500"}
"""A pull that may be held; it brings its own subscription."""


class RetainingGroup(BrokerGroup):
    """Small segments; the members in `retaining` remove all but their last messages."""

    def __init__(self, folder: Path) -> None:
        self.retaining: set[str] = set()
        super().__init__(
            folder, segment_size_bytes=1 << 16, index_segment_size_bytes=1 << 14,
            snapshot_threshold=100, snapshots_reserved=1, retention_bytes=ENOUGH_BYTES,
        )  # fmt: skip

    def settings(self, member: str) -> NodeSettings:
        """Return a member's settings."""
        settings = super().settings(member)
        if member in self.retaining:
            settings = replace(settings, retention_bytes=RETENTION_BYTES)
        return settings

    def retain(self, member: str) -> None:
        """Restart a member as one that removes messages."""
        self.retaining.add(member)
        self.kill(member)
        self.start(member)
        self.wait_until_up(member)


def fill(client: BrokerClient, first: int) -> int:
    """Send messages whose bodies begin with their offsets; return the next offset."""
    opaques = [
        client.begin(RequestCode.SEND_MESSAGE_V2, send_ext("t"), body_of(at))
        for at in range(first, first + BATCH)
    ]
    for opaque in opaques:
        assert client.answer(opaque).code == ResponseCode.SUCCESS
    return first + BATCH


def body_of(offset: int) -> bytes:
    return b"%d." % offset + bytes(300)


def fill_until_removed(group: BrokerGroup, leader: str, members: set[str]) -> int:
    """Send messages until these members have removed some; return the next offset."""
    with BrokerClient(group.broker_addresses[leader]) as client:
        count = fill(client, 0)

        def have_removed() -> bool:
            nonlocal count
            if all(group.status(member).ledger_begin_index > BATCH for member in members):
                return True
            count = fill(client, count)
            return False

        wait_for(have_removed, f"{members} have removed messages")
    return count


def followers(group: BrokerGroup, leader: str) -> list[str]:
    return [member for member in group.peers if member != leader]


@pytest.fixture
def retaining(tmp_path: Path) -> Iterator[RetainingGroup]:
    """A group that removes nothing yet."""
    with RetainingGroup(tmp_path) as running:
        running.master()
        yield running


def test_a_member_that_does_not_lead_moves_a_consumer_to_the_first_message_that_is_kept(
    retaining: RetainingGroup,
) -> None:
    for member in retaining.peers:
        retaining.retain(member)
    leader = retaining.master()
    count = fill_until_removed(retaining, leader, set(retaining.peers))

    with BrokerClient(retaining.broker_addresses[followers(retaining, leader)[0]]) as client:
        client.wait_until_visible("t", count)
        moved = client.pull("t", 0, **HELD)
        first = number(moved, "nextBeginOffset")
        pulled = client.pull("t", first)
        beyond = client.pull("t", count + 5, **HELD)

    assert {moved.code, beyond.code} == {ResponseCode.PULL_OFFSET_MOVED}, moved.remark
    assert 0 < first < count
    assert bodies(pulled)[0] == body_of(first)
    assert number(beyond, "nextBeginOffset") == first


def test_messages_that_only_the_leader_still_has_reach_consumers_of_other_members(
    retaining: RetainingGroup,
) -> None:
    leader = retaining.master()
    behind = followers(retaining, leader)[0]
    retaining.retain(behind)
    leader = retaining.master()
    count = fill_until_removed(retaining, leader, {behind})
    pulled: list[bytes] = []

    with BrokerClient(retaining.broker_addresses[behind]) as client:
        client.wait_until_visible("t", count)
        while len(pulled) < count:
            answer = client.pull("t", len(pulled), **HELD)
            assert answer.code == ResponseCode.SUCCESS, (len(pulled), answer.remark)
            pulled += bodies(answer)

    assert retaining.status(leader).ledger_begin_index == 0
    assert pulled == [body_of(at) for at in range(count)]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerGroup]:
    """Three members."""
    with BrokerGroup(tmp_path_factory.mktemp("moved")) as running:
        running.master()
        yield running


def test_a_consumer_of_a_topic_that_was_created_again_gets_its_first_messages(
    group: BrokerGroup,
) -> None:
    leader = group.master()
    follower = followers(group, leader)[0]
    with (
        BrokerClient(group.broker_addresses[leader]) as producer,
        BrokerClient(group.broker_addresses[follower]) as consumer,
    ):
        for _ in range(10):
            producer.send("again")
        consumer.wait_until_visible("again", 10)
        deleted = producer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "again"})
        for number_sent in range(3):
            producer.send("again", b"new %d" % number_sent)
        moved = consumer.pull("again", 10, **HELD)
        consumer.wait_until_visible("again", 3)
        pulled = consumer.pull("again", number(moved, "nextBeginOffset"))

    assert deleted.code == ResponseCode.SUCCESS
    assert moved.code == ResponseCode.PULL_OFFSET_MOVED, moved.remark
    assert bodies(pulled) == [b"new 0", b"new 1", b"new 2"]


def test_a_consumer_of_a_topic_that_was_created_again_and_is_empty_begins_with_it(
    group: BrokerGroup,
) -> None:
    leader = group.master()
    with (
        BrokerClient(group.broker_addresses[leader]) as producer,
        BrokerClient(group.broker_addresses[followers(group, leader)[0]]) as consumer,
    ):
        producer.send("anew")
        producer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "anew"})
        producer.send("anew", e="1")

        def moved_to() -> list[int]:
            answer = consumer.pull("anew", 1)  # this member may not have seen the deletion yet
            is_moved = answer.code == ResponseCode.PULL_OFFSET_MOVED
            return [number(answer, "nextBeginOffset")] if is_moved else []

        assert wait_for(moved_to, "the consumer is moved") == [0]


@pytest.mark.parametrize("committed", [2, 3], ids=["a message is left", "none is left"])
def test_a_consumer_of_a_log_that_has_lost_its_end_goes_on_where_its_group_continues(
    group: BrokerGroup, committed: int
) -> None:
    """It began again with the first message, and committed that."""
    leader, topic = group.master(), f"lost-{committed}"
    with (
        BrokerClient(group.broker_addresses[leader]) as producer,
        BrokerClient(group.broker_addresses[followers(group, leader)[0]]) as consumer,
    ):
        for _ in range(3):
            producer.send(topic)
        ext = {
            "consumerGroup": "consumers", "topic": topic, "queueId": "0",
            "commitOffset": str(committed),
        }  # fmt: skip
        taken = producer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        moved = consumer.pull(topic, 5, **HELD)

    assert taken.code == ResponseCode.SUCCESS, taken.remark
    assert moved.code == ResponseCode.PULL_OFFSET_MOVED, moved.remark
    assert number(moved, "nextBeginOffset") == committed


def test_a_consumer_that_comes_from_the_leader_is_not_moved_back_by_a_member_that_lags(
    group: BrokerGroup,
) -> None:
    leader = group.master()
    with (
        BrokerClient(group.broker_addresses[leader]) as producer,
        BrokerClient(group.broker_addresses[followers(group, leader)[0]]) as consumer,
    ):
        producer.send("moving")
        consumer.wait_until_visible("moving", 1)
        codes = set()
        for at in range(1, 50):
            producer.send("moving")
            codes.add(consumer.pull("moving", at + 1).code)

    assert codes == {ResponseCode.PULL_NOT_FOUND}


def test_a_member_without_a_leader_moves_no_consumer(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        alone = followers(group, leader)[0]
        with (
            BrokerClient(group.broker_addresses[leader]) as producer,
            BrokerClient(group.broker_addresses[alone]) as consumer,
        ):
            producer.send("t")
            consumer.wait_until_visible("t", 1)
            for member in group.peers:
                if member != alone:
                    group.freeze(member)
            answer = consumer.pull("t", 5, **HELD)
            for member in group.peers:
                if member != alone:
                    group.thaw(member)

    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert number(answer, "nextBeginOffset") == 5
