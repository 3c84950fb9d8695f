"""What each kind of state record changes, and when it changes nothing."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from dledger_broker.state.groups import Queue
from dledger_broker.state.tables import Tables
from dledger_formats.rocketmq.state_records import (
    AnyStateRecord,
    ClientJoined,
    ClientLeft,
    GroupDeleted,
    GroupSet,
    Offsets,
    QueuesLocked,
    QueuesUnlocked,
    TopicDeleted,
    TopicSet,
)


def refusal(tables: Tables, record: AnyStateRecord) -> str | None:
    """Return why a record would change nothing, in words; None if it may change something.

    Each offset and each lock of a record is judged by itself, when it is applied.
    """
    match record:
        case TopicSet(config=topic):
            return tables.topics.refusal(topic)
        case TopicDeleted(topic=name):
            return tables.topics.deletion_refusal(name)
        case GroupSet(config=group):
            return tables.groups.refusal(group)
        case GroupDeleted(group=name) if name not in tables.groups.configs:
            return f"there is no consumer group {name}"
        case ClientJoined(client_id=client_id, consumer=consumer):
            return tables.groups.join_refusal(client_id, consumer)
    return None


def make(tables: Tables, record: AnyStateRecord, index: int, timestamp_ms: int) -> None:
    """Change the tables, unless the record is refused. The entry was stored at this time."""
    if refusal(tables, record) is None:
        _CHANGES[type(record)](tables, record, index, timestamp_ms)


def _set_topic(tables: Tables, record: TopicSet, index: int, timestamp_ms: int) -> None:
    tables.topics.set(record.config, index)
    tables.topics_version = tables.topics_version.next(timestamp_ms)


def _delete_topic(tables: Tables, record: TopicDeleted, _index: int, timestamp_ms: int) -> None:
    tables.topics.delete(record.topic)
    tables.offsets.delete(lambda _, topic: topic == record.topic)
    tables.groups.unlock_topic(record.topic)
    tables.topics_version = tables.topics_version.next(timestamp_ms)


def _set_group(tables: Tables, record: GroupSet, _index: int, timestamp_ms: int) -> None:
    tables.groups.configs[record.config.group_name] = record.config
    tables.groups_version = tables.groups_version.next(timestamp_ms)


def _delete_group(tables: Tables, record: GroupDeleted, _index: int, timestamp_ms: int) -> None:
    del tables.groups.configs[record.group]
    if record.clean_offset:
        tables.offsets.delete(lambda group, _: group == record.group)
    tables.groups_version = tables.groups_version.next(timestamp_ms)


def _set_offsets(tables: Tables, record: Offsets, _index: int, _timestamp_ms: int) -> None:
    """Set the offsets of known groups in existing queues, as far as there is room."""
    for each in record.groups:
        if each.group not in tables.groups.configs:
            continue
        for queue_id, offset in each.offsets:
            if tables.topics.has_queue(each.topic, queue_id) and (
                tables.offsets.refusal(each.group, each.topic, queue_id) is None
            ):
                tables.offsets.set(each.group, each.topic, queue_id, offset)


def _join(tables: Tables, record: ClientJoined, _index: int, _timestamp_ms: int) -> None:
    tables.groups.join(record.client_id, record.consumer)


def _leave(tables: Tables, record: ClientLeft, _index: int, _timestamp_ms: int) -> None:
    tables.groups.leave(record.client_id, record.group)


def _lock(tables: Tables, record: QueuesLocked, _index: int, _timestamp_ms: int) -> None:
    """Lock existing queues, as far as there is room."""
    for topic, queue_id in record.queues:
        if tables.topics.has_queue(topic, queue_id):
            tables.groups.lock(record.client_id, Queue(record.group, topic, queue_id))


def _unlock(tables: Tables, record: QueuesUnlocked, _index: int, _timestamp_ms: int) -> None:
    for topic, queue_id in record.queues:
        tables.groups.unlock(record.client_id, Queue(record.group, topic, queue_id))


_CHANGES: Final[Mapping[type[AnyStateRecord], Callable[[Tables, Any, int, int], None]]] = {
    TopicSet: _set_topic,
    TopicDeleted: _delete_topic,
    GroupSet: _set_group,
    GroupDeleted: _delete_group,
    Offsets: _set_offsets,
    ClientJoined: _join,
    ClientLeft: _leave,
    QueuesLocked: _lock,
    QueuesUnlocked: _unlock,
}
