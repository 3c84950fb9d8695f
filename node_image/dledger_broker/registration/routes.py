"""The answers of a name server for one group. Pure functions."""

from collections.abc import Mapping
from typing import Final

from dledger_broker.settings import BrokerSettings
from dledger_broker.state import tables_shown
from dledger_broker.state.topics import Topic
from dledger_formats.rocketmq import topic_names
from dledger_formats.rocketmq.codes import Permission
from dledger_formats.rocketmq.names import (
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicList,
    TopicRoute,
)
from dledger_formats.rocketmq.topics import TopicConfig

TEMPLATE_QUEUES: Final = 8
"""Queues of the template of topics, and so the most that a first message creates."""
TEMPLATE: Final = TopicConfig(
    topic_name=topic_names.DEFAULT_TOPIC,
    read_queue_nums=TEMPLATE_QUEUES,
    write_queue_nums=TEMPLATE_QUEUES,
    perm=int(Permission.READ | Permission.WRITE | Permission.INHERIT),
)


def broker_data(settings: BrokerSettings, addresses: Mapping[str, str]) -> BrokerData:
    """Return the broker with its addresses by broker id (`Addresses.route`)."""
    return BrokerData(
        broker_name=settings.name,
        cluster=settings.cluster,
        broker_addrs=dict(addresses),
        enable_acting_master=False,
    )


def config_of(settings: BrokerSettings, name: str, topic: Topic | None) -> TopicConfig | None:
    """Return a topic's settings as clients see them; None if there is no such topic."""
    if name == topic_names.DEFAULT_TOPIC:
        return TEMPLATE if settings.auto_create_topics else None
    return None if topic is None else tables_shown.topic_config(name, topic)


def route(
    settings: BrokerSettings, config: TopicConfig, addresses: Mapping[str, str]
) -> TopicRoute:
    """Return the route of a topic."""
    queues = QueueData(
        broker_name=settings.name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )
    return TopicRoute(broker_datas=[broker_data(settings, addresses)], queue_datas=[queues])


def cluster(settings: BrokerSettings, addresses: Mapping[str, str]) -> ClusterInfo:
    """Return the clusters and brokers: one of each."""
    return ClusterInfo(
        broker_addr_table={settings.name: broker_data(settings, addresses)},
        cluster_addr_table={settings.cluster: [settings.name]},
    )


def topic_list(settings: BrokerSettings, topics: Mapping[str, Topic]) -> TopicList:
    """Return the names of all topics."""
    names = {*topics}
    if settings.auto_create_topics:
        names.add(topic_names.DEFAULT_TOPIC)
    return TopicList(topic_list=sorted(names))
