"""Clients and the groups that they form (codes 34, 35, 38, 40 to 42 and 46)."""

from typing import Annotated, Final

import msgspec

from dledger_formats.protocol.decoding import Int32, Int64
from dledger_formats.rocketmq.ext_fields import ExtFields, RequestFields
from dledger_formats.rocketmq.json_bodies import AnswerBody, JsonBody, no, no_items

CLUSTERING: Final = "CLUSTERING"
"""The message model in which the members of a group share the queues."""
_GROUPS_MAX: Final = 1024
_SUBSCRIPTIONS_MAX: Final = 1024
_QUEUES_MAX: Final = 4096


def _tag() -> str:
    return "TAG"


class Subscription(JsonBody, kw_only=True, frozen=True):
    """What a consumer wants from one topic (`SubscriptionData`)."""

    topic: str
    sub_string: str
    """Tags separated by `||`, or `*`."""
    sub_version: Int64
    """Time of the client when it subscribed, in ms."""
    expression_type: str | None = msgspec.field(default_factory=_tag)
    tags_set: list[str] = msgspec.field(default_factory=no_items)
    """The broker refuses a subscription with too many, but accepts a heartbeat's other ones."""
    code_set: list[Int32] = msgspec.field(default_factory=no_items)
    """Java's hashes of the tags."""
    class_filter_mode: bool = msgspec.field(default_factory=no)


class Consumer(JsonBody, kw_only=True, frozen=True):
    """One consumer group of a client (`ConsumerData`)."""

    group_name: str
    consume_type: str
    """CONSUME_PASSIVELY for push, CONSUME_ACTIVELY for pull consumers."""
    message_model: str
    """CLUSTERING or BROADCASTING."""
    consume_from_where: str
    subscription_data_set: Annotated[
        list[Subscription], msgspec.Meta(max_length=_SUBSCRIPTIONS_MAX)
    ] = msgspec.field(default_factory=no_items)
    unit_mode: bool = msgspec.field(default_factory=no)


class Producer(JsonBody, kw_only=True, frozen=True):
    """One producer group of a client (`ProducerData`)."""

    group_name: str


class Heartbeat(JsonBody, kw_only=True, frozen=True):
    """The body of HEART_BEAT (`HeartbeatData`)."""

    client_id: str = msgspec.field(name="clientID")
    consumer_data_set: Annotated[list[Consumer], msgspec.Meta(max_length=_GROUPS_MAX)] = (
        msgspec.field(default_factory=no_items)
    )
    producer_data_set: Annotated[list[Producer], msgspec.Meta(max_length=_GROUPS_MAX)] = (
        msgspec.field(default_factory=no_items)
    )
    heartbeat_fingerprint: Int32 | None = None
    """Since 5.1, like the next field: a heartbeat may say that nothing changed."""
    without_sub: bool | None = None


class HeartbeatAnswerFields(ExtFields, kw_only=True, frozen=True):
    """The answer to HEART_BEAT. Brokers before 5.1 leave both out."""

    supports_v2: bool | None = msgspec.field(default=None, name="IS_SUPPORT_HEART_BEAT_V2")
    subscription_changed: bool | None = msgspec.field(default=None, name="IS_SUB_CHANGE")


class UnregisterClientFields(RequestFields, kw_only=True, frozen=True):
    """The fields of UNREGISTER_CLIENT: a producer group, or a consumer group."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerGroupFields(RequestFields, kw_only=True, frozen=True):
    """The fields of GET_CONSUMER_LIST_BY_GROUP and of NOTIFY_CONSUMER_IDS_CHANGED."""

    consumer_group: str


class ConsumerIds(AnswerBody, kw_only=True, frozen=True):
    """The answer to GET_CONSUMER_LIST_BY_GROUP."""

    consumer_id_list: list[str]


class MessageQueue(JsonBody, kw_only=True, frozen=True):
    """One queue, as clients name it."""

    topic: str
    broker_name: str
    queue_id: Int32


class LockQueues(JsonBody, kw_only=True, frozen=True):
    """The body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    consumer_group: str
    client_id: str
    mq_set: Annotated[list[MessageQueue], msgspec.Meta(max_length=_QUEUES_MAX)]
    only_this_broker: bool | None = None


class LockedQueues(AnswerBody, kw_only=True, frozen=True):
    """The answer to LOCK_BATCH_MQ."""

    locked: list[MessageQueue] = msgspec.field(name="lockOKMQSet")


class CheckClient(JsonBody, kw_only=True, frozen=True):
    """The body of CHECK_CLIENT_CONFIG, which clients send for SQL92 subscriptions."""

    client_id: str
    group: str
    subscription_data: Subscription
    namespace: str | None = None
