"""Heartbeats as they are written by RocketMQ's C++ client, on which its Python client is built.

That client writes the positions of constants instead of their names, and the version of a
subscription as a text. Java reads both. The orders are those of Java's enums.
"""

from typing import Any, Final

from dledger_formats.json_objects import FormatError
from dledger_formats.rocketmq.consumer_groups import Heartbeat

_NAMES: Final = {
    "consumeType": ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY"),
    "messageModel": ("BROADCASTING", "CLUSTERING"),
    "consumeFromWhere": (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
}
_VERSION_DIGITS_MAX: Final = 19


def read(body: bytes) -> Heartbeat:
    """Read the body of HEART_BEAT. Raises FormatError, which names what is wrong."""
    plain = Heartbeat.parse(body)
    try:
        return Heartbeat.from_plain(plain)
    except FormatError:
        if not _mend(plain):
            raise
    return Heartbeat.from_plain(plain)


def _mend(heartbeat: object) -> bool:
    """Replace positions by names and texts by numbers, in place; return whether any changed."""
    changed = False
    for consumer in _objects(heartbeat, "consumerDataSet"):
        for key, known in _NAMES.items():
            position = consumer.get(key)
            if type(position) is int and 0 <= position < len(known):
                consumer[key] = known[position]
                changed = True
        for subscription in _objects(consumer, "subscriptionDataSet"):
            version = subscription.get("subVersion")
            if isinstance(version, str) and version.isascii() and version.isdigit():
                if len(version) > _VERSION_DIGITS_MAX:
                    continue
                subscription["subVersion"] = int(version)
                changed = True
    return changed


def _objects(within: object, key: str) -> list[dict[str, Any]]:
    """Return the objects of a list under a key; none if there is no such list."""
    listed = within.get(key) if isinstance(within, dict) else None
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
