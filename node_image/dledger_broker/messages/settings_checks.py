"""Checks of the settings that an administrator wants for topics and groups. Pure functions."""

from collections.abc import Mapping
from typing import Final

from dledger_broker.messages import retries, send_checks
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.state.topics import QUEUES_MAX
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_formats.rocketmq.topics import CreateTopicFields, TopicConfig

PERMISSIONS: Final = range(8)
RETRY_QUEUES_MAX: Final = 16
FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
ATTRIBUTES: Final[Mapping[str, frozenset[str]]] = {
    "message.type": frozenset(
        ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "LITE", "PRIORITY")
    ),
    "queue.type": frozenset(("SimpleCQ",)),
    "cleanup.policy": frozenset(("DELETE",)),
}
"""Attributes of a topic (since 5.0) that change nothing here, or ask for what is done anyway."""


def topic_config(fields: CreateTopicFields, before: TopicConfig | None) -> TopicConfig:
    """Return a topic's settings after a request. Raises RefusedError."""
    send_checks.check_topic(fields.topic)
    for name, count in (
        ("readQueueNums", fields.read_queue_nums),
        ("writeQueueNums", fields.write_queue_nums),
    ):
        if not 1 <= count <= QUEUES_MAX:
            raise _invalid(f"{name} is {count}; it must be from 1 to {QUEUES_MAX}")
    if fields.perm not in PERMISSIONS:
        raise _invalid(f"perm is {fields.perm}; it must be from 0 to {PERMISSIONS[-1]}")
    if fields.topic_filter_type not in FILTER_TYPES:
        raise _invalid(
            f"topicFilterType is {fields.topic_filter_type[:50]!r}; it must be one of "
            f"{', '.join(FILTER_TYPES)}"
        )
    return TopicConfig(
        topic_name=fields.topic,
        read_queue_nums=fields.read_queue_nums,
        write_queue_nums=fields.write_queue_nums,
        perm=fields.perm,
        order=bool(fields.order),
        topic_filter_type=fields.topic_filter_type,
        topic_sys_flag=fields.topic_sys_flag or 0,
        attributes=_attributes(fields.attributes, (before and before.attributes) or {}),
    )


def check_group(asked: SubscriptionGroup) -> None:
    """Refuse settings that no group may have. Raises RefusedError."""
    retries.retry_topic(asked.group_name)
    if not 0 <= asked.retry_queue_nums <= RETRY_QUEUES_MAX:
        raise _invalid(
            f"retryQueueNums is {asked.retry_queue_nums}; it must be from 0 to {RETRY_QUEUES_MAX}"
        )


def _attributes(text: str | None, before: Mapping[str, str]) -> dict[str, str] | None:
    """Return the attributes after a change such as `+message.type=FIFO,-queue.type`."""
    after = dict(before)
    for change in filter(None, (text or "").split(",")):
        name, equals, value = change[1:].partition("=")
        if change[0] == "-" and not equals:
            after.pop(name, None)
        elif change[0] == "+" and equals:
            if value not in ATTRIBUTES.get(name, ()):
                raise _invalid(f"the attribute {name[:50]}={value[:50]} is not supported")
            after[name] = value
        else:
            raise _invalid(
                f"attributes has {change[:50]!r}; each change is +name=value or -name, with commas "
                "between them"
            )
    return after or None


def _invalid(remark: str) -> RefusedError:
    return RefusedError(ResponseCode.INVALID_PARAMETER, remark)
