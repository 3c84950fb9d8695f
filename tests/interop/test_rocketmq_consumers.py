"""RocketMQ's own push consumers, and pull consumers that subscribe, with a group of brokers."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bench.rocketmq_clients import log_bodies
from bench.rocketmq_judge import MessageJudge
from dledger_broker_client.client import BrokerClient
from dledger_formats.log.checksum import crc32
from dledger_formats.rocketmq.codes import RequestCode
from dledger_java.rocketmq import Event, PushConsumer, Scenario, of_kind, play
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = [pytest.mark.interop, pytest.mark.sampled(1, by="rocketmq")]


@contextmanager
def push_consumer(
    folder: Path, class_path: str, brokers: BrokerGroup, topic: str, group: str, **options: object
) -> Iterator[PushConsumer]:
    folder.mkdir(exist_ok=True)
    with Scenario(
        folder, class_path, "push", brokers.name_servers, topic=topic, group=group, **options
    ) as scenario:
        consumer = PushConsumer(scenario)
        wait_for(lambda: of_kind(list(consumer.events), "started"), "it started", timeout_s=60)
        yield consumer


def send(
    folder: Path, class_path: str, brokers: BrokerGroup, topic: str, **options: object
) -> None:
    events = play(folder, class_path, "send", brokers.name_servers, topic=topic, **options)
    assert of_kind(events, "failed") == []


def keys(first: int, end: int) -> Counter[str]:
    return Counter(f"k{n}" for n in range(first, end))


def total(consumers: list[PushConsumer]) -> Counter[str]:
    return sum((consumer.keys for consumer in consumers), Counter[str]())


def wait_for_keys(consumers: list[PushConsumer], wanted: Counter[str]) -> None:
    wait_for(lambda: not wanted - total(consumers), f"{len(wanted)} messages", timeout_s=60)


def wait_for_topic(brokers: BrokerGroup, topic: str) -> None:
    with BrokerClient(brokers.broker_addresses[brokers.master()]) as client:
        ext = {"topic": topic}
        wait_for(
            lambda: client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext).code == 0,
            f"{topic} exists",
        )


class Keys:
    """Hands out the first of the next hundred keys."""

    def __init__(self, end: int) -> None:
        self.end = end

    def __call__(self) -> int:
        self.end += 100
        return self.end - 100


def test_push_consumers_of_one_group_share_the_messages_and_those_of_one_that_leaves(
    rocketmq: str, brokers: BrokerGroup, tmp_path: Path
) -> None:
    topic = f"shared-{crc32(rocketmq.encode())}"
    send(tmp_path, rocketmq, brokers, topic, count=100)
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(
                push_consumer(tmp_path / name, rocketmq, brokers, topic, f"group-of-{topic}")
            )
            for name in ("one", "two")
        )
        wait_for_keys([one, two], keys(0, 100))
        next_key = Keys(100)

        def both_receive() -> bool:
            begin = one.keys.total(), two.keys.total()
            send(tmp_path, rocketmq, brokers, topic, count=100, first=next_key())
            wait_for_keys([one, two], keys(0, next_key.end))
            return one.keys.total() > begin[0] and two.keys.total() > begin[1]

        wait_for(both_receive, "both receive messages", timeout_s=60)
        two.stop()
        begin = one.keys.total()
        send(tmp_path, rocketmq, brokers, topic, count=100, first=next_key())
        wait_for_keys([one, two], keys(0, next_key.end))

        assert one.keys.total() >= begin + 100


def test_every_broadcast_consumer_receives_every_message_once(
    rocketmq: str, brokers: BrokerGroup, tmp_path: Path
) -> None:
    topic = f"broadcast-{crc32(rocketmq.encode())}"
    send(tmp_path, rocketmq, brokers, topic, count=50)
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(
                push_consumer(
                    tmp_path / name, rocketmq, brokers, topic, f"all-of-{topic}",
                    model="broadcasting",
                )
            )
            for name in ("one", "two")
        )  # fmt: skip
        send(tmp_path, rocketmq, brokers, topic, count=50, first=50)
        for consumer in (one, two):
            wait_for_keys([consumer], keys(0, 100))
            assert consumer.keys == keys(0, 100)


def test_a_push_consumer_gets_only_the_tags_that_it_wants(
    rocketmq_5: str, brokers: BrokerGroup, tmp_path: Path
) -> None:
    for first, tag in ((0, "red"), (10, "blue"), (20, "green")):
        send(tmp_path, rocketmq_5, brokers, "push-tags", count=10, first=first, tag=tag)

    with push_consumer(
        tmp_path / "c", rocketmq_5, brokers, "push-tags", "taggers", tags="red||green"
    ) as consumer:
        wait_for_keys([consumer], keys(0, 10) + keys(20, 30))

        assert Counter(e["tags"] for e in consumer.received) == {"red": 10, "green": 10}


def test_a_pull_consumer_that_subscribes_gets_its_queues_and_all_messages(
    rocketmq: str, brokers: BrokerGroup, tmp_path: Path
) -> None:
    topic = f"lite-{crc32(rocketmq.encode())}"
    send(tmp_path, rocketmq, brokers, topic, count=100)

    events = play(
        tmp_path, rocketmq, "pull", brokers.name_servers,
        topic=topic, group=f"lite-of-{topic}", count=100, subscribe="yes",
    )  # fmt: skip

    assert Counter(event["key"] for event in of_kind(events, "received")) == keys(0, 100)


def test_a_message_that_a_consumer_refuses_comes_again_and_is_then_a_dead_letter(
    rocketmq: str, brokers: BrokerGroup, tmp_path: Path
) -> None:
    topic = f"refused-{crc32(rocketmq.encode())}"
    group = f"refusers-of-{topic}"
    send(tmp_path, rocketmq, brokers, topic, count=10)
    with push_consumer(
        tmp_path / "c", rocketmq, brokers, topic, group, failing=9, reconsumes=2, level=1
    ) as consumer:
        wait_for_keys([consumer], Counter({f"k{n}": 3 for n in range(10)}))
        wait_for_topic(brokers, f"%DLQ%{group}")
        dead = play(
            tmp_path, rocketmq, "pull", brokers.name_servers,
            topic=f"%DLQ%{group}", group="undertakers", count=10, seconds=30,
        )  # fmt: skip

        assert Counter(event["key"] for event in of_kind(dead, "received")) == keys(0, 10)
        assert Counter(event["times"] for event in consumer.received) == {0: 10, 1: 10, 2: 10}
        assert {event["topic"] for event in consumer.received} == {topic}


def test_a_message_that_an_ordered_consumer_refuses_is_a_dead_letter_after_its_tries(
    rocketmq: str, brokers: BrokerGroup, tmp_path: Path
) -> None:
    topic = f"given-up-{crc32(rocketmq.encode())}"
    group = f"orderers-of-{topic}"
    send(tmp_path, rocketmq, brokers, topic, count=10)
    with push_consumer(
        tmp_path / "c", rocketmq, brokers, topic, group, orderly="yes", failing=9, reconsumes=1
    ) as consumer:
        wait_for_keys([consumer], Counter({f"k{n}": 2 for n in range(10)}))
        wait_for_topic(brokers, f"%DLQ%{group}")
        dead = play(
            tmp_path, rocketmq, "pull", brokers.name_servers,
            topic=f"%DLQ%{group}", group="undertakers", count=10, seconds=30,
        )  # fmt: skip

        assert Counter(event["key"] for event in of_kind(dead, "received")) == keys(0, 10)
        assert Counter(event["times"] for event in consumer.received) == {0: 10, 1: 10}


def test_ordered_consumers_share_the_queues_and_keep_the_order_of_each(
    rocketmq: str, brokers: BrokerGroup, tmp_path: Path
) -> None:
    topic = f"ordered-{crc32(rocketmq.encode())}"
    group = f"orderers-of-{topic}"
    send(tmp_path, rocketmq, brokers, topic, count=200)
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(
                push_consumer(
                    tmp_path / name, rocketmq, brokers, topic, group, orderly="yes", pause=5
                )
            )
            for name in ("one", "two")
        )
        wait_for_keys([one, two], keys(0, 200))
        next_key = Keys(200)

        def both_receive() -> bool:
            begin = one.keys.total(), two.keys.total()
            send(tmp_path, rocketmq, brokers, topic, count=100, first=next_key())
            wait_for_keys([one, two], keys(0, next_key.end))
            return one.keys.total() > begin[0] and two.keys.total() > begin[1]

        wait_for(both_receive, "both receive messages", timeout_s=60)

        for consumer in (one, two):
            places = [(event["queue"], event["offset"]) for event in consumer.received]
            assert sorted(places) == sorted(places, key=lambda place: place[0])


def test_a_push_consumer_gets_every_acknowledged_message_although_the_leader_is_killed(
    rocketmq: str, tmp_path: Path
) -> None:
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        first = play(tmp_path, rocketmq, "send", group.name_servers, topic="t", count=10)
        options = {"topic": "t", "first": 10, "count": 600, "pause": 5, "retries": 20}
        with push_consumer(tmp_path / "c", rocketmq, group, "t", "g") as consumer:
            wait_for_keys([consumer], keys(0, 10))
            with Scenario(tmp_path, rocketmq, "send", group.name_servers, **options) as producer:
                events: list[Event] = []
                while len(of_kind(events, "sent")) < 100:
                    events.append(producer.next_event())
                group.kill(leader)
                events += producer.rest()
            acknowledged = {event["key"] for event in of_kind(events, "sent")}
            wait_for(lambda: acknowledged <= set(consumer.keys), "all of them", timeout_s=90)
            judge = MessageJudge("t")
            for event in (*first, *events):
                judge.take(event, 0.0)
            for event, at_s in zip(consumer.received, consumer.times_s, strict=False):
                judge.take(event, at_s)
            judge.take_log(log_bodies(group.servers, "g"))

    assert judge.verdict().faults == []
    assert len(acknowledged) > 150, "sends succeed after the failover, too"
