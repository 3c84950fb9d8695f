"""RocketMQ's own Java clients with a group of broker members: they send, and pull by themselves."""

from collections import Counter
from pathlib import Path

import pytest

from bench.rocketmq_clients import log_bodies
from bench.rocketmq_judge import MessageJudge
from dledger_formats.log.checksum import crc32
from dledger_java.rocketmq import Event, Scenario, of_kind, play
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = [pytest.mark.interop, pytest.mark.sampled(1, by="rocketmq")]

MESSAGES = 1000


def topic_for(class_path: str, purpose: str) -> str:
    """Return a topic that no other test uses: one for each client and purpose."""
    return f"{purpose}-{crc32(class_path.encode())}"


def place(event: Event) -> tuple[int, int]:
    return event["queue"], event["offset"]


def pulled(
    folder: Path, class_path: str, brokers: BrokerGroup, topic: str, count: int, **options: object
) -> list[Event]:
    events = play(
        folder, class_path, "pull", brokers.name_servers,
        topic=topic, group=f"pullers-of-{topic}", count=count, **options,
    )  # fmt: skip
    return of_kind(events, "received")


def check_offsets_are_gapless(received: list[Event]) -> None:
    """Check that the messages of each queue come once each, in the order of their offsets."""
    next_offsets: Counter[int] = Counter()
    for event in received:
        assert event["offset"] == next_offsets[event["queue"]], event
        next_offsets[event["queue"]] += 1


def test_a_java_client_pulls_back_what_it_sent_at_the_same_offsets(
    rocketmq: str, brokers: BrokerGroup, tmp_path: Path
) -> None:
    topic = topic_for(rocketmq, "sync")

    sent = play(
        tmp_path, rocketmq, "send", brokers.name_servers, topic=topic, count=MESSAGES, tag="TagA"
    )
    received = pulled(tmp_path, rocketmq, brokers, topic, MESSAGES)

    sent = of_kind(sent, "sent")
    assert {event["status"] for event in sent} == {"SEND_OK"}
    assert len(sent) == len(received) == MESSAGES
    check_offsets_are_gapless(received)
    assert len({event["queue"] for event in received}) == 4
    by_place = {place(event): event for event in received}
    for event in sent:
        other = by_place[place(event)]
        body = bytes.fromhex(other["body"])
        assert other["key"] == event["key"]
        assert body == event["key"].encode().ljust(100, b".")
        assert other["crc"] == crc32(body) & 0x7FFFFFFF
        assert other["tags"] == "TagA"


@pytest.mark.parametrize("mode", ["async", "batch", "oneway"])
def test_every_way_of_sending_stores_each_message_once(
    rocketmq: str, brokers: BrokerGroup, tmp_path: Path, mode: str
) -> None:
    topic = topic_for(rocketmq, mode)

    events = play(
        tmp_path, rocketmq, "send", brokers.name_servers, topic=topic, count=200, mode=mode
    )
    received = pulled(tmp_path, rocketmq, brokers, topic, 200)

    assert of_kind(events, "failed") == []
    check_offsets_are_gapless(received)
    assert sorted(event["key"] for event in received) == sorted(f"k{n}" for n in range(200))
    keys = {place(event): event["key"] for event in received}
    assert all(keys[place(event)] == event["key"] for event in of_kind(events, "sent"))


def test_a_large_message_is_compressed_by_the_client_and_comes_back(
    rocketmq_5: str, brokers: BrokerGroup, tmp_path: Path
) -> None:
    play(
        tmp_path, rocketmq_5, "send", brokers.name_servers, topic="large", count=3, bytes=1_000_000
    )
    received = pulled(tmp_path, rocketmq_5, brokers, "large", 3)

    assert [len(event["body"]) // 2 for event in received] == [1_000_000] * 3


def test_a_consumer_continues_where_its_group_committed(
    rocketmq_5: str, brokers: BrokerGroup, tmp_path: Path
) -> None:
    def send(first: int) -> None:
        play(
            tmp_path, rocketmq_5, "send", brokers.name_servers,
            topic="committed", count=40, first=first,
        )  # fmt: skip

    send(0)
    first = play(
        tmp_path, rocketmq_5, "pull", brokers.name_servers,
        topic="committed", group="committers", count=40, commit="yes",
    )  # fmt: skip
    send(40)
    second = play(
        tmp_path, rocketmq_5, "pull", brokers.name_servers,
        topic="committed", group="committers", count=40, **{"from": "committed"},
    )  # fmt: skip

    assert sum(event["offset"] for event in of_kind(first, "committed")) == 40
    keys = {event["key"] for event in of_kind(second, "received")}
    assert keys == {f"k{n}" for n in range(40, 80)}


def test_a_consumer_gets_only_the_tags_that_it_asks_for(
    rocketmq_5: str, brokers: BrokerGroup, tmp_path: Path
) -> None:
    for first, tag in ((0, "red"), (10, "blue"), (20, "green")):
        play(
            tmp_path, rocketmq_5, "send", brokers.name_servers,
            topic="tags", count=10, first=first, tag=tag,
        )  # fmt: skip

    received = pulled(tmp_path, rocketmq_5, brokers, "tags", 20, tags="red||green")

    assert Counter(event["tags"] for event in received) == {"red": 10, "green": 10}


def test_delayed_messages_come_after_their_time(
    rocketmq: str, brokers: BrokerGroup, tmp_path: Path
) -> None:
    topic = topic_for(rocketmq, "late")
    play(tmp_path, rocketmq, "send", brokers.name_servers, topic=topic, count=20, delay=1)

    received = pulled(tmp_path, rocketmq, brokers, topic, 20)

    assert sorted(event["key"] for event in received) == sorted(f"k{n}" for n in range(20))
    assert all(event["stored"] - event["born"] >= 1000 for event in received)


def test_nothing_acknowledged_is_lost_when_the_leader_is_killed(
    rocketmq: str, tmp_path: Path
) -> None:
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        options = {"topic": "failover", "count": 600, "pause": 5, "retries": 20}
        with Scenario(tmp_path, rocketmq, "send", group.name_servers, **options) as scenario:
            events: list[Event] = []
            while len(of_kind(events, "sent")) < 100:
                events.append(scenario.next_event())
            group.kill(leader)
            events += scenario.rest()
        wait_for(lambda: group.master() != leader, "another member leads")
        group.start(leader)
        group.wait_until_up(leader)
        judge = MessageJudge("failover")
        stored = judge.take_log(log_bodies(group.servers, "g"))
        received = pulled(tmp_path, rocketmq, group, "failover", stored)

    for event in (*events, *received):
        judge.take(event, 0.0)
    assert len(of_kind(events, "sent")) > 150, "sends succeed after the failover, too"
    check_offsets_are_gapless(received)
    assert judge.verdict().faults == []
