"""Topics with their settings, and the next offset of each of their queues."""

from typing import Final, Self

from dledger_formats.rocketmq import topic_names
from dledger_formats.rocketmq.topics import TopicConfig

TOPICS_MAX: Final = 10_000
QUEUES_MAX: Final = 100_000
"""Queues of all topics. A queue that once existed counts until its topic is deleted."""
CONFIG_BYTES_MAX: Final = 4096
"""JSON of the settings of one topic or group: with its attributes it could be of any length."""


class Topic:
    """One topic."""

    __slots__ = ("config", "created_index", "next_offsets")

    def __init__(
        self, config: TopicConfig | None, created_index: int, next_offsets: list[int]
    ) -> None:
        self.config = config
        """The settings; None for a topic that has messages, but was never set: a system topic, or
        one in a log that Java's broker wrote.
        """
        self.created_index = created_index
        """Index of the entry that created it. Entries before it belong to a deleted topic."""
        self.next_offsets = next_offsets
        """The offset that the next message of each queue gets."""


class Topics:
    """All topics."""

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.queues = 0
        """The number of queues of all topics."""

    def refusal(self, config: TopicConfig) -> str | None:
        """Return why these settings cannot be set, in words; None if they can."""
        name = config.topic_name
        if topic_names.is_system(name):
            return f"{name} is a topic of the system"
        if len(config.to_json()) > CONFIG_BYTES_MAX:
            return f"the settings of {name} have more than {CONFIG_BYTES_MAX} bytes"
        topic = self.by_name.get(name)
        if topic is None and len(self.by_name) >= TOPICS_MAX:
            return f"the broker has {TOPICS_MAX} topics, which is the limit"
        if self.queues + self.missing_queues(config) > QUEUES_MAX:
            return f"the broker would have more than {QUEUES_MAX} queues"
        return None

    def set(self, config: TopicConfig, index: int) -> None:
        """Create a topic, or change its settings. Its queues stay, even if it is to have fewer."""
        topic = self._topic(config.topic_name, index)
        topic.config = config
        self._grow(topic, _queues_of(config))

    def missing_queues(self, config: TopicConfig) -> int:
        """Return how many queues these settings would add."""
        return self._missing(self.by_name.get(config.topic_name), _queues_of(config))

    def deletion_refusal(self, name: str) -> str | None:
        """Return why a topic cannot be deleted, in words; None if it can."""
        if topic_names.is_system(name):
            return f"{name} is a topic of the system"
        return None if name in self.by_name else f"there is no topic {name}"

    def delete(self, name: str) -> None:
        """Delete a topic with its queues. One of the same name starts again at offset 0."""
        self.queues -= len(self.by_name.pop(name).next_offsets)

    def next_offset(self, name: str, queue_id: int) -> int:
        """Return the offset that the next message of a queue gets; 0 for an unknown queue."""
        topic = self.by_name.get(name)
        if topic is None or not 0 <= queue_id < len(topic.next_offsets):
            return 0
        return topic.next_offsets[queue_id]

    def has_queue(self, name: str, queue_id: int) -> bool:
        """Return whether a queue exists."""
        topic = self.by_name.get(name)
        return topic is not None and 0 <= queue_id < len(topic.next_offsets)

    def refusal_of_place(self, name: str, queue_id: int) -> str | None:
        """Return why a message cannot be added to a queue; None if it can."""
        if self.has_queue(name, queue_id):
            return None
        return self._place_refusal(name, self.by_name.get(name), queue_id)

    def add_message(self, name: str, queue_id: int, queue_offset: int, index: int) -> str | None:
        """Count a message. Returns what is wrong with it, and then counts nothing."""
        topic = self.by_name.get(name)
        exists = topic is not None and 0 <= queue_id < len(topic.next_offsets)
        expected = topic.next_offsets[queue_id] if topic is not None and exists else 0
        if queue_offset != expected:
            return f"offset {queue_offset} of {name[:150]}/{queue_id}, where {expected} is next"
        if topic is None or not exists:
            wrong = self._place_refusal(name, topic, queue_id)
            if wrong is not None:
                return wrong
            topic = self._topic(name, index)
            self._grow(topic, queue_id + 1)
        topic.next_offsets[queue_id] = expected + 1
        return None

    def copy(self) -> Self:
        """Return a copy that does not change when these do."""
        other = type(self)()
        other.by_name = {
            name: Topic(topic.config, topic.created_index, topic.next_offsets.copy())
            for name, topic in self.by_name.items()
        }
        other.queues = self.queues
        return other

    def restore(self, name: str, topic: Topic) -> str | None:
        """Take over one topic of a snapshot. Returns what is wrong with it."""
        if name in self.by_name or not topic_names.is_valid(name):
            return f"the topic {name[:150]!r}"
        if topic.config is not None and topic.config.topic_name != name:
            return f"settings of {topic.config.topic_name[:150]!r} for the topic {name}"
        self.by_name[name] = topic
        self.queues += len(topic.next_offsets)
        if len(self.by_name) > TOPICS_MAX or self.queues > QUEUES_MAX:
            return f"{len(self.by_name)} topics with {self.queues} queues"
        return None

    def _place_refusal(self, name: str, topic: Topic | None, queue_id: int) -> str | None:
        """Return why a queue that does not exist cannot be made for a message."""
        if not topic_names.is_valid(name):
            return f"{name[:150]!r} is not the name of a topic"
        if topic is None and len(self.by_name) >= TOPICS_MAX:
            return f"{name} would be topic {TOPICS_MAX + 1}"
        if self.queues + self._missing(topic, queue_id + 1) > QUEUES_MAX:
            return f"with {name}/{queue_id} there would be more than {QUEUES_MAX} queues"
        return f"queue {queue_id} of {name}" if queue_id < 0 else None

    def _topic(self, name: str, index: int) -> Topic:
        topic = self.by_name.get(name)
        if topic is None:
            topic = self.by_name[name] = Topic(None, index, [])
        return topic

    def _grow(self, topic: Topic, queues: int) -> None:
        missing = self._missing(topic, queues)
        topic.next_offsets += [0] * missing
        self.queues += missing

    @staticmethod
    def _missing(topic: Topic | None, queues: int) -> int:
        return max(0, queues - (0 if topic is None else len(topic.next_offsets)))


def _queues_of(config: TopicConfig) -> int:
    return max(config.read_queue_nums, config.write_queue_nums)
