"""Name servers: what brokers register, and what clients ask for (codes 103 to 106 and 206).

The answer to GET_BROKER_RUNTIME_INFO (28), which tools ask of each broker, is here, too.
"""

from typing import Final

import msgspec

from dledger_formats.log.checksum import crc32
from dledger_formats.protocol.decoding import Int32, Int64
from dledger_formats.rocketmq.ext_fields import ExtFields, RequestFields
from dledger_formats.rocketmq.json_bodies import AnswerBody, JsonBody, no_entries, no_items, zero
from dledger_formats.rocketmq.topics import TopicTable

MASTER_ID: Final = 0
"""The broker id of the member that clients send to."""


class RegisterBrokerFields(RequestFields, kw_only=True, frozen=True):
    """The fields of REGISTER_BROKER."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    body_crc32: Int32 | None = None
    """See `body_checksum`. 0: not checked."""
    compressed: bool | None = None
    enable_acting_master: bool | None = None
    """Since 5.0. Its presence marks a broker of 5.x."""
    heartbeat_timeout_millis: Int64 | None = None


class RegisterBroker(AnswerBody, kw_only=True, frozen=True):
    """The body of REGISTER_BROKER, not compressed."""

    topic_config_serialize_wrapper: TopicTable
    filter_server_list: list[str] = msgspec.field(default_factory=no_items)


class RegisteredFields(ExtFields, kw_only=True, frozen=True):
    """The answer to REGISTER_BROKER: to a slave, its master's addresses."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerFields(RequestFields, kw_only=True, frozen=True):
    """The fields of UNREGISTER_BROKER."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class BrokerData(JsonBody, kw_only=True, frozen=True):
    """The addresses of the brokers of one name, by broker id."""

    broker_name: str
    cluster: str
    broker_addrs: dict[str, str]
    enable_acting_master: bool | None = None


class QueueData(JsonBody, kw_only=True, frozen=True):
    """How many queues a topic has at the brokers of one name."""

    broker_name: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_sys_flag: Int32 = msgspec.field(default_factory=zero)


class TopicRoute(AnswerBody, kw_only=True, frozen=True):
    """The answer to GET_ROUTEINFO_BY_TOPIC (`TopicRouteData`)."""

    broker_datas: list[BrokerData]
    queue_datas: list[QueueData]
    filter_server_table: dict[str, list[str]] = msgspec.field(default_factory=no_entries)
    order_topic_conf: str | None = None


class ClusterInfo(AnswerBody, kw_only=True, frozen=True):
    """The answer to GET_BROKER_CLUSTER_INFO."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, list[str]]


class TopicList(AnswerBody, kw_only=True, frozen=True):
    """The answer to GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""

    topic_list: list[str]
    broker_addr: str | None = None


class RuntimeInfo(AnswerBody, kw_only=True, frozen=True):
    """The answer to GET_BROKER_RUNTIME_INFO (`KVTable`)."""

    table: dict[str, str]


def body_checksum(body: bytes) -> int:
    """Return the `body_crc32` of the body of REGISTER_BROKER."""
    return crc32(body) & 0x7FFFFFFF
