"""The parts of a broker's state, together."""

from typing import Final, NamedTuple, Self

from dledger_broker.state.consumer_offsets import ConsumerOffsets
from dledger_broker.state.groups import Groups
from dledger_broker.state.topics import Topics
from dledger_formats.rocketmq import delay_levels

NO_OFFSET: Final = -1


class TableVersion(NamedTuple):
    """The version of the topics or of the groups: the same at all members."""

    changes: int = 0
    timestamp_ms: int = 0
    """When the last change was stored."""

    def next(self, timestamp_ms: int) -> "TableVersion":
        """Return the version after a change."""
        return TableVersion(self.changes + 1, timestamp_ms)


class Tables:
    """Topics, groups, offsets, clients, locks and the positions of delayed messages."""

    def __init__(self) -> None:
        self.topics = Topics()
        self.offsets = ConsumerOffsets()
        self.groups = Groups()
        self.topics_version = TableVersion()
        self.groups_version = TableVersion()
        self.delay_positions = [0] * delay_levels.LEVEL_MAX
        """For each delay level: the queue offset of its first message that is not delivered."""
        self.last_physical_offset = NO_OFFSET
        """The physical offset of the last message."""

    def copy(self) -> Self:
        """Return a copy that does not change when these do."""
        other = type(self)()
        other.topics = self.topics.copy()
        other.offsets = self.offsets.copy()
        other.groups = self.groups.copy()
        other.topics_version = self.topics_version
        other.groups_version = self.groups_version
        other.delay_positions = self.delay_positions.copy()
        other.last_physical_offset = self.last_physical_offset
        return other
