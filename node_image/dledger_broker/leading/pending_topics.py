"""Topics as they will be once everything that this leader has proposed is applied.

The state refuses a topic or a queue beyond its bounds, and the members stop at a message whose
queue was refused. So a leader proposes no setting unless there is room for it besides all others
that may be in the log. Each one keeps its room until it is applied, or is known never to be in the
log: of two settings of one topic the second may be refused, and the first one written.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dledger_broker.leading.deletions import Deletions
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.state import topics
from dledger_broker.state.broker_state import BrokerState
from dledger_formats.rocketmq import delay_levels
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.topics import TopicConfig

SYSTEM_TOPICS: Final = 3
"""Places for the topics of the state, of delayed messages and of undelivered ones."""
SYSTEM_QUEUES: Final = 2 + delay_levels.LEVEL_MAX


@dataclass(slots=True, kw_only=True, eq=False)
class Setting:
    """Settings of a topic that were proposed in this term."""

    config: TopicConfig
    change: bytearray
    """The record, kept so that its `id` stays its own."""
    topics: int
    """How many topics they may add, 0 or 1."""
    queues: int
    """How many queues they may add."""
    physical_offset: int = -1
    """Where the record is in the log; -1 until it is stamped."""
    is_refused: bool = False
    """Whether the record is not in the log, and never will be."""


class PendingTopics:
    """The topics of the state, and the changes of them that may not be applied yet."""

    def __init__(self, state: Callable[[], BrokerState]) -> None:
        self._state = state
        self._by_change: dict[int, Setting] = {}
        """Settings that may not be applied yet, by the `id` of their record."""
        self._by_name: dict[str, list[Setting]] = {}
        """Settings that may not be applied yet, by topic, in the order of their proposals."""
        self._stamped: deque[Setting] = deque()
        """Changes that are in the log, in its order."""
        self._topics = self._queues = 0
        """The number of topics and of queues that all of them may add."""
        self.deletions = Deletions(lambda: state().tables.last_physical_offset)

    def clear(self) -> None:
        """Forget everything: another term begins, and all of this one is applied."""
        self._by_change.clear()
        self._by_name.clear()
        self._stamped.clear()
        self._topics = self._queues = 0
        self.deletions.clear()

    def config(self, name: str) -> TopicConfig | None:
        """Return a topic's settings, also of one whose creation is not applied yet.

        Raises RefusedError for one that is being deleted.
        """
        if name in self.deletions:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"the topic {name} is being deleted; try again"
            )
        self._release_applied()  # else a topic that was deleted since would seem to be on its way
        pending = self._by_name.get(name)
        found = self._state().tables.topics.by_name.get(name)
        if found is not None:
            return found.config
        return pending[-1].config if pending else None

    def newest(self, name: str) -> Setting | None:
        """Return the newest settings of a topic that may not be applied yet; None if all are."""
        pending = self._by_name.get(name)
        return pending[-1] if pending else None

    def begin_setting(self, config: TopicConfig, change: bytearray) -> None:
        """Record that settings are proposed by this record.

        Raises RefusedError if there is no room.
        """
        self._release_applied()  # first: what it releases is then in the state
        known = self._state().tables.topics
        new = int(config.topic_name not in known.by_name)
        queues = known.missing_queues(config)
        refusal = known.refusal(config)
        if refusal is None and (
            new and len(known.by_name) + self._topics + new + SYSTEM_TOPICS > topics.TOPICS_MAX
        ):
            refusal = f"the broker has {topics.TOPICS_MAX} topics, which is the limit"
        wanted = known.queues + self._queues + queues + SYSTEM_QUEUES
        if refusal is None and wanted > topics.QUEUES_MAX:
            refusal = f"the broker would have more than {topics.QUEUES_MAX} queues"
        if refusal is not None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, refusal)
        setting = Setting(config=config, change=change, topics=new, queues=queues)
        self._by_change[id(change)] = setting
        self._by_name.setdefault(config.topic_name, []).append(setting)
        self._topics += new
        self._queues += queues

    def stamped(self, record: bytearray, physical_offset: int) -> None:
        """Record the place in the log of a record, which may be one of these settings."""
        setting = self._by_change.get(id(record))
        if setting is not None:
            setting.physical_offset = physical_offset
            self._stamped.append(setting)

    def forget(self, change: bytearray) -> None:
        """Forget settings whose record is not in the log, and never will be."""
        setting = self._by_change.get(id(change))
        if setting is not None and setting.physical_offset < 0:
            setting.is_refused = True
            self._release(setting)

    def begin_deleting(self, name: str) -> None:
        """Record that the deletion of a topic is proposed."""
        self.deletions.begin(name)

    def _release_applied(self) -> None:
        applied = self._state().tables.last_physical_offset
        while self._stamped and self._stamped[0].physical_offset <= applied:
            self._release(self._stamped.popleft())

    def _release(self, setting: Setting) -> None:
        del self._by_change[id(setting.change)]
        of_topic = self._by_name[setting.config.topic_name]
        of_topic.remove(setting)
        if not of_topic:
            del self._by_name[setting.config.topic_name]
        self._topics -= setting.topics
        self._queues -= setting.queues
