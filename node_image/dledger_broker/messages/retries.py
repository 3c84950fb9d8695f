"""Messages that a consumer group returns: to `%RETRY%group` with a delay, or to `%DLQ%group`."""

from typing import Final

import msgspec

from dledger_broker.messages import delays, send_checks
from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.rocketmq import delay_levels, properties, topic_names
from dledger_formats.rocketmq.codes import Permission, ResponseCode
from dledger_formats.rocketmq.message_id import MessageId
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_formats.rocketmq.sends import SendBackFields
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_formats.rocketmq.topics import TopicConfig

FIRST_LEVEL: Final = 3
"""The delay level of the first retry, 10 s; each further one has the next level."""
_RETRY_TOPIC: Final = properties.RETRY_TOPIC.encode()
_ORIGIN: Final = properties.ORIGIN_MESSAGE_ID.encode()


def retry_topic(group: str, config: SubscriptionGroup | None = None) -> TopicConfig:
    """Return the topic of messages that a group will get again. Raises RefusedError."""
    queues = 1 if config is None else max(1, config.retry_queue_nums)
    return _topic(topic_names.RETRY_PREFIX, group, queues)


def dead_letter_topic(group: str) -> TopicConfig:
    """Return the topic of messages that a group will not get again. Raises RefusedError."""
    return _topic(topic_names.DEAD_LETTER_PREFIX, group)


def times_max(config: SubscriptionGroup | None, asked: int | None) -> int:
    """Return how often a message is delivered again, before it is a dead letter."""
    if asked is not None:
        return asked
    return (config or SubscriptionGroup(group_name="")).retry_max_times


def is_sent_too_often(times: int, times_max: int, *, is_ordered: bool) -> bool:
    """Return whether a message that a consumer sent to its retry topic as a new one is dead.

    `times` is what the client says. A client whose return (36) has failed counts the delivery that
    it asks for. An ordered consumer sends only what it gives up, and clients until 5.1.0 then count
    no further delivery.
    """
    return times > times_max or (is_ordered and times == times_max)


def returned(
    record: MessageRecord,
    fields: SendBackFields,
    config: SubscriptionGroup,
    store_host: bytes,
    retry_queues: int = 1,
) -> tuple[TopicConfig, MessageRecord]:
    """Return the topic of a returned message, and the message. Raises RefusedError.

    The topic is the one that the message will be delivered to, even if it waits first. The retry
    topic has `retry_queues` queues.
    """
    times = max(0, record.reconsume_times)
    is_dead = fields.delay_level < 0 or times >= times_max(config, fields.max_reconsume_times)
    topic = dead_letter_topic(fields.group) if is_dead else retry_topic(fields.group, config)
    encoded = properties.without(record.properties, *delays.BROKERS_OWN)
    if properties.find(encoded, _RETRY_TOPIC) is None:
        encoded += b"%b\x01%b\x02" % (_RETRY_TOPIC, record.topic.encode())
    if properties.find(encoded, _ORIGIN) is None:
        origin = str(MessageId(record.store_host, record.physical_offset))
        encoded += b"%b\x01%b\x02" % (_ORIGIN, origin.encode())
    again = msgspec.structs.replace(
        send_checks.stored_by(record, store_host),
        topic=topic.topic_name,
        queue_id=0 if is_dead else record.queue_offset % retry_queues,
        properties=encoded,
        reconsume_times=times + 1,
    )
    if is_dead:
        return topic, again
    level = min(fields.delay_level or FIRST_LEVEL + times, delay_levels.LEVEL_MAX)
    return topic, delays.waiting(again, level)


def _topic(prefix: str, group: str, queues: int = 1) -> TopicConfig:
    name = prefix + group
    if not (topic_names.is_valid(group) and topic_names.is_valid(name)):
        longest = topic_names.NAME_BYTES_MAX - len(topic_names.RETRY_PREFIX)
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"{group[:150]!r} is no name of a consumer group: 1 to {longest} of the letters "
            "a-z A-Z 0-9 _ - % |",
        )
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=int(Permission.READ | Permission.WRITE),
    )
