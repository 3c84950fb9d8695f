"""States of a broker after a few steps, and short names of common state records."""

from dledger_broker.state.broker_state import BrokerState
from dledger_broker_log.logs import Log, Step
from dledger_formats.rocketmq.consumer_groups import Consumer
from dledger_formats.rocketmq.state_records import (
    ClientJoined,
    GroupOffsets,
    GroupSet,
    Offsets,
    TopicSet,
)
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_formats.rocketmq.topics import TopicConfig


def dumped(state: BrokerState) -> bytes:
    return b"".join(state.dump())


def applied(*steps: Step) -> BrokerState:
    state = BrokerState()
    log = Log().extend(steps)
    state.apply(log.batch(0, len(log.entries)))
    return state


def topic_config(name: str, queues: int = 1) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6)


def topic_set(name: str, queues: int = 4) -> TopicSet:
    return TopicSet(config=topic_config(name, queues))


def group_set(name: str) -> GroupSet:
    return GroupSet(config=SubscriptionGroup(group_name=name))


def offsets(group: str, topic: str, *pairs: tuple[int, int]) -> Offsets:
    return Offsets(groups=[GroupOffsets(group=group, topic=topic, offsets=list(pairs))])


def joined(client_id: str, group: str) -> ClientJoined:
    consumer = Consumer(
        group_name=group, consume_type="", message_model="CLUSTERING", consume_from_where=""
    )
    return ClientJoined(client_id=client_id, consumer=consumer)
