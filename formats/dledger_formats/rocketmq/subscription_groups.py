"""Consumer groups as they are configured (codes 200, 201, 207, 352 and 402)."""

from typing import Any

import msgspec

from dledger_formats.protocol.decoding import Int32, Int64
from dledger_formats.rocketmq.ext_fields import RequestFields
from dledger_formats.rocketmq.json_bodies import AnswerBody, JsonBody, yes, zero
from dledger_formats.rocketmq.topics import DataVersion


def _one() -> int:
    return 1


def _sixteen() -> int:
    return 16


class SubscriptionGroup(JsonBody, kw_only=True, frozen=True):
    """The settings of a consumer group, with Java's defaults (`SubscriptionGroupConfig`)."""

    group_name: str
    consume_enable: bool = msgspec.field(default_factory=yes)
    consume_from_min_enable: bool = msgspec.field(default_factory=yes)
    consume_broadcast_enable: bool = msgspec.field(default_factory=yes)
    retry_queue_nums: Int32 = msgspec.field(default_factory=_one)
    retry_max_times: Int32 = msgspec.field(default_factory=_sixteen)
    broker_id: Int64 = msgspec.field(default_factory=zero)
    which_broker_when_consume_slowly: Int64 = msgspec.field(default_factory=_one)
    notify_consumer_ids_changed_enable: bool = msgspec.field(default_factory=yes)
    consume_message_orderly: bool | None = None
    """Since 5.0, like the fields after it."""
    consume_timeout_minute: Int32 | None = None
    group_sys_flag: Int32 | None = None
    group_retry_policy: dict[str, Any] | None = None
    attributes: dict[str, str] | None = None


class SubscriptionGroupTable(AnswerBody, kw_only=True, frozen=True):
    """The answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    data_version: DataVersion
    subscription_group_table: dict[str, SubscriptionGroup]
    forbidden_table: dict[str, dict[str, Int32]] | None = None


class DeleteGroupFields(RequestFields, kw_only=True, frozen=True):
    """The fields of DELETE_SUBSCRIPTIONGROUP."""

    group_name: str
    clean_offset: bool | None = None
    """Whether the group's offsets are deleted, too. Java's default is no."""


class GroupFields(RequestFields, kw_only=True, frozen=True):
    """The fields of GET_SUBSCRIPTIONGROUP_CONFIG."""

    group: str


class MessageRequestModes(AnswerBody, kw_only=True, frozen=True):
    """The answer to GET_ALL_MESSAGE_REQUEST_MODE; always empty here."""

    message_request_mode_map: dict[str, Any]
