"""Names of topics: which are allowed, and which RocketMQ uses for itself (`TopicValidator`)."""

import re
from typing import Final

NAME_BYTES_MAX: Final = 127
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
STATE_TOPIC: Final = "rmq_sys_broker_state"
"""Ours: changes of the broker's state, see `state_records`."""
UNDELIVERED_TOPIC: Final = "rmq_sys_undelivered"
"""Ours: delayed messages whose own queue is gone when they are due."""
DEFAULT_TOPIC: Final = "TBW102"
"""The template of topics that a first message creates."""
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
_SYSTEM_PREFIX: Final = "rmq_sys_"
_SYSTEM: Final = frozenset(
    (
        SCHEDULE_TOPIC, DEFAULT_TOPIC, SELF_TEST_TOPIC, "BenchmarkTest", "OFFSET_MOVED_EVENT",
        "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    )
)  # fmt: skip
NAME_PATTERN: Final = rf"\A[%|a-zA-Z0-9_-]{{1,{NAME_BYTES_MAX}}}\Z"
_NAME: Final = re.compile(NAME_PATTERN)


def is_valid(name: str) -> bool:
    """Return whether a topic or a group may have this name, which is a safe file name, too."""
    return _NAME.match(name) is not None


def is_system(topic: str) -> bool:
    """Return whether clients must not create, delete or send to this topic."""
    return topic in _SYSTEM or topic.startswith(_SYSTEM_PREFIX)
