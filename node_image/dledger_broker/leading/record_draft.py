"""Records on their way into the log."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from dledger_broker.leading.pending_topics import Setting
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.rocketmq import message_record, state_records, topic_names
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_formats.rocketmq.state_records import AnyStateRecord, GroupDeleted, TopicDeleted
from dledger_node.services.drafts import Draft, Outcome

Place: TypeAlias = tuple[str, int]
"""A topic and a queue."""
STATE_PLACE: Place = (topic_names.STATE_TOPIC, 0)


class RecordDraft(Draft):
    """Records of consecutive entries: changes of the state first, then messages."""

    __slots__ = (
        "changes", "deletion", "ended", "first_offset", "place", "places", "positions", "setting",
    )  # fmt: skip

    def __init__(
        self,
        changes: Sequence[bytearray],
        messages: Sequence[bytearray],
        place: Place,
        ended: "Callable[[RecordDraft, Outcome], None]",
        places: Sequence[Place] | None = None,
    ) -> None:
        """`place` is the queue of all messages, unless `places` has the queue of each."""
        super().__init__([*changes, *messages] if changes else messages)
        self.changes = len(changes)
        """The number of changes."""
        self.place = place
        self.places = places
        self.ended = ended
        self.first_offset = -1
        """The queue offset of the first message, once it is stamped."""
        self.deletion: TopicDeleted | GroupDeleted | None = None
        """The topic or group that the last of the records deletes."""
        self.setting: Setting | None = None
        """Settings on their way that keep room for the messages' queues; None if the queues exist,
        or belong to the system.
        """
        self.positions: Sequence[int] = ()
        """The positions of the messages' entries, once they are stamped."""

    def end(self, outcome: Outcome) -> None:
        """Call `ended`, the first time only.

        A draft whose proposal failed unexpectedly has ended as unknown, and its request may be
        answered. The end of what was written nevertheless changes nothing.
        """
        ended, self.ended = self.ended, _has_ended
        ended(self, outcome)

    def is_applied(self, applied_offset: int) -> bool:
        """Return whether the leader that proposed this has applied it; `applied_offset` is the
        physical offset of the last record that it has applied.
        """
        return bool(self.positions) and self.positions[-1] + ENTRY_HEADER_SIZE <= applied_offset


def _has_ended(draft: RecordDraft, outcome: Outcome) -> None:
    """Do nothing."""


def state_record(change: AnyStateRecord, born_ms: int, host: bytes) -> bytearray:
    """Return the record of a change, without what the leader stamps. Raises FormatError."""
    long_host = len(host) > 8
    return message_record.encode(
        MessageRecord(
            topic_names.STATE_TOPIC, 0, 0, 0, state_records.encode(change),
            sys_flag=48 if long_host else 0, born_timestamp=born_ms, born_host=host,
            store_host=host,
        )
    )  # fmt: skip
