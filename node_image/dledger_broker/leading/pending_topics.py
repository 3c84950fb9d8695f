"""Topics as they will be once everything is applied that this leader has proposed."""

from collections.abc import Callable
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


class PendingTopics:
    """The topics of the state, and the changes of them that may not be applied yet."""

    def __init__(self, state: Callable[[], BrokerState]) -> None:
        self._state = state
        self._set: dict[str, TopicConfig] = {}
        """Settings that were proposed in this term, and may not be applied yet."""
        self.deletions = Deletions(lambda: state().tables.last_physical_offset)

    def clear(self) -> None:
        """Forget everything: another term begins, and all of this one is applied."""
        self._set.clear()
        self.deletions.clear()

    def config(self, name: str) -> TopicConfig | None:
        """Return a topic's settings, also of one whose creation is not applied yet.

        Raises RefusedError for one that is being deleted.
        """
        if name in self.deletions:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"the topic {name} is being deleted; try again"
            )
        found = self._state().tables.topics.by_name.get(name)
        return self._set.get(name) if found is None else found.config

    def begin_setting(self, config: TopicConfig) -> None:
        """Take note that settings are proposed. Raises RefusedError if there is no room."""
        known = self._state().tables.topics
        # The state's thread may apply pending settings just now: they are then counted twice.
        pending = {
            name: each
            for name, each in self._set.items()
            if (topic := known.by_name.get(name)) is None or topic.config != each
        }
        wanted = pending | {config.topic_name: config}
        new = sum(name not in known.by_name for name in wanted)
        queues = sum(map(known.missing_queues, wanted.values()))
        refusal = known.refusal(config)
        if refusal is None and (
            config.topic_name not in known.by_name
            and len(known.by_name) + new + SYSTEM_TOPICS > topics.TOPICS_MAX
        ):
            refusal = f"the broker has {topics.TOPICS_MAX} topics, which is the limit"
        if refusal is None and known.queues + queues + SYSTEM_QUEUES > topics.QUEUES_MAX:
            refusal = f"the broker would have more than {topics.QUEUES_MAX} queues"
        if refusal is not None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, refusal)
        self._set = wanted

    def forget(self, name: str) -> None:
        """Forget settings that were refused: they are not in the log."""
        self._set.pop(name, None)

    def begin_deleting(self, name: str) -> None:
        """Take note that the deletion of a topic is proposed."""
        self._set.pop(name, None)
        self.deletions.begin(name)
