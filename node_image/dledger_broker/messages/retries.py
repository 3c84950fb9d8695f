"""Topics for messages that a consumer group returns: `%RETRY%group` and `%DLQ%group`."""

from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.rocketmq import topic_names
from dledger_formats.rocketmq.codes import Permission, ResponseCode
from dledger_formats.rocketmq.topics import TopicConfig


def retry_topic(group: str) -> TopicConfig:
    """Return the topic of messages that a group will get again. Raises RefusedError."""
    return _topic(topic_names.RETRY_PREFIX, group)


def _topic(prefix: str, group: str) -> TopicConfig:
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
        read_queue_nums=1,
        write_queue_nums=1,
        perm=int(Permission.READ | Permission.WRITE),
    )
