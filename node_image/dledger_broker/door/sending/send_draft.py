"""The records of one send, on their way into the log."""

from dledger_broker.door.calls.call import Call
from dledger_broker.leading.record_draft import RecordDraft
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.services.draft_numbers import Numbers


class SendDraft(RecordDraft):
    """The records of one send."""

    __slots__ = ("call", "created", "queue_id", "repeats", "unique_key")

    call: Call
    repeats: Numbers | None
    """All numbers of the send, if this draft has only those messages that the log lacked."""
    queue_id: int
    """The queue that the answer names; a delayed message waits in another one."""
    unique_key: str | None
    created: TopicConfig | None
    """The topic that the draft's first record creates; None if it exists."""
