"""The tables of the state as administrators and other brokers see them. Pure functions.

Any thread may call them: they copy each table, in one step, before they iterate over it. A list of
a table's items takes many: a collection of garbage in between may let another thread run.
"""

from collections import defaultdict

from dledger_broker.state.consumer_offsets import UNSET
from dledger_broker.state.tables import Tables, TableVersion
from dledger_broker.state.topics import Topic
from dledger_formats.rocketmq.codes import Permission
from dledger_formats.rocketmq.offsets import ConsumerOffsets, DelayOffsets
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroupTable
from dledger_formats.rocketmq.topics import DataVersion, TopicConfig, TopicTable


def topic_config(name: str, topic: Topic) -> TopicConfig:
    """Return a topic's settings. A topic whose settings were never set is read-only."""
    if topic.config is not None:
        return topic.config
    queues = max(1, len(topic.next_offsets))
    return TopicConfig(
        topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=int(Permission.READ)
    )


def topics(tables: Tables) -> TopicTable:
    """Return all topics."""
    return TopicTable(
        data_version=_version(tables.topics_version),
        topic_config_table={
            name: topic_config(name, topic) for name, topic in tables.topics.by_name.copy().items()
        },
    )


def groups(tables: Tables) -> SubscriptionGroupTable:
    """Return all consumer groups."""
    return SubscriptionGroupTable(
        data_version=_version(tables.groups_version),
        subscription_group_table=tables.groups.configs.copy(),
        forbidden_table={},
    )


def consumer_offsets(tables: Tables) -> ConsumerOffsets:
    """Return where all groups continue."""
    shown: dict[str, dict[str, int]] = defaultdict(dict)
    for (group, topic), offsets in tables.offsets.by_pair.copy().items():
        shown[f"{topic}@{group}"] = {
            str(queue_id): offset
            for queue_id, offset in enumerate(offsets.copy())
            if offset != UNSET
        }
    return ConsumerOffsets(offset_table=dict(shown))


def delay_offsets(tables: Tables) -> DelayOffsets:
    """Return how far each delay level is delivered."""
    return DelayOffsets(
        offset_table={
            str(level): position for level, position in enumerate(tables.delay_positions, 1)
        },
    )


def _version(version: TableVersion) -> DataVersion:
    return DataVersion(counter=version.changes, timestamp=version.timestamp_ms, state_version=0)
