"""Delayed messages: how they wait in SCHEDULE_TOPIC_XXXX, and what they are once they are due."""

from typing import Final

import msgspec

from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.rocketmq import delay_levels, properties, topic_names
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.message_record import MessageRecord

MARGIN_BYTES: Final = 16
"""A message that waits must leave this much room in its properties, and in its entry of the log: if
the name of its topic is short, it becomes a little longer on its delivery.
"""
PROPERTIES_BYTES_MAX: Final = properties.PROPERTIES_BYTES_MAX - MARGIN_BYTES
_DELAY: Final = properties.DELAY.encode()
_REAL_TOPIC: Final = properties.REAL_TOPIC.encode()
_REAL_QUEUE_ID: Final = properties.REAL_QUEUE_ID.encode()
_SCHEDULED: Final = properties.SCHEDULED.encode()
BROKERS_OWN: Final = _DELAY, _REAL_TOPIC, _REAL_QUEUE_ID, _SCHEDULED
"""Properties that say how a message waits, or has waited."""
_DIGITS_MAX: Final = 9


def level_of(encoded: bytes) -> int:
    """Return the delay level that properties ask for; 0 for none. Raises RefusedError."""
    if _DELAY not in encoded:
        return 0
    value = properties.find(encoded, _DELAY)
    if value is None:
        return 0
    if not value.isdigit() or len(value) > _DIGITS_MAX:
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the property DELAY is {value[:20]!r}; it must be a level from 0 to "
            f"{delay_levels.LEVEL_MAX}",
        )
    return min(int(value), delay_levels.LEVEL_MAX)


def waiting(record: MessageRecord, level: int) -> MessageRecord:
    """Return a message as it waits for its delivery. Raises RefusedError."""
    encoded = properties.without(record.properties, *BROKERS_OWN) + (
        b"DELAY\x01%d\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02"
        % (level, record.topic.encode(), record.queue_id)
    )
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the properties of the delayed message have {len(encoded)} bytes; at most "
            f"{PROPERTIES_BYTES_MAX} are allowed",
        )
    return msgspec.structs.replace(
        record, topic=topic_names.SCHEDULE_TOPIC, queue_id=level - 1, properties=encoded
    )


def delivered(record: MessageRecord) -> MessageRecord:
    """Return a message that has waited, as its consumers get it.

    Its property `DLEDGER_SCHEDULED` says which one it was, so the delivery also records the
    progress. A message whose topic is not known goes to the topic of undelivered messages.
    """
    encoded = record.properties
    topic = (properties.find(encoded, _REAL_TOPIC) or b"").decode(errors="replace")
    queue_id = properties.find(encoded, _REAL_QUEUE_ID) or b""
    if not topic_names.is_valid(topic) or not queue_id.isdigit() or len(queue_id) > _DIGITS_MAX:
        topic, queue_id = topic_names.UNDELIVERED_TOPIC, b"0"
    kept = properties.without(encoded, *BROKERS_OWN)
    mark = b"%b\x01%d %d\x02" % (_SCHEDULED, record.queue_id + 1, record.queue_offset)
    return msgspec.structs.replace(
        record, topic=topic, queue_id=int(queue_id), properties=kept + mark
    )


def undelivered(record: MessageRecord) -> MessageRecord:
    """Return a delivered message for the topic of messages whose own queue is gone."""
    return msgspec.structs.replace(record, topic=topic_names.UNDELIVERED_TOPIC, queue_id=0)
