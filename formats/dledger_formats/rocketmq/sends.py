"""Sends: one message (codes 10 and 310), a batch (320), and a message that a consumer returns (36).

The body of a send is the message's body, compressed if bit 0 of its sysFlag says so; that of a
batch is in `message_batch`. Java's clients abbreviate the names of a send's fields (310 and 320);
the long names (10) mean the same.
"""

from typing import Any, Final, Self

import msgspec

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.decoding import Int32, Int64
from dledger_formats.rocketmq.ext_fields import ExtFields, RequestFields


class SendMessageFields(ExtFields, kw_only=True, frozen=True):
    """The fields of 310 and 320, `SendMessageRequestHeaderV2`."""

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(name="c")
    """The topic whose settings are copied if this message creates its topic."""
    default_topic_queue_nums: Int32 = msgspec.field(name="d")
    queue_id: Int32 = msgspec.field(name="e")
    """Below 0: the broker chooses."""
    sys_flag: Int32 = msgspec.field(name="f")
    born_timestamp: Int64 = msgspec.field(name="g")
    flag: Int32 = msgspec.field(name="h")
    """The user's flag, stored as it is."""
    properties: str | None = msgspec.field(default=None, name="i")
    """See `properties`."""
    reconsume_times: Int32 | None = msgspec.field(default=None, name="j")
    unit_mode: bool | None = msgspec.field(default=None, name="k")
    max_reconsume_times: Int32 | None = msgspec.field(default=None, name="l")
    batch: bool | None = msgspec.field(default=None, name="m")
    bname: str | None = msgspec.field(default=None, name="n")


class LongSendMessageFields(SendMessageFields, kw_only=True, frozen=True):
    """The fields of a send under their long names, `SendMessageRequestHeader` of code 10."""

    @classmethod
    def from_ext(cls, ext: Any) -> Self:
        """Read the fields. Raises FormatError."""
        ext = ext or {}
        if len(ext) > cls.FIELDS_MAX:
            raise FormatError(f"{len(ext)} ext fields; at most {cls.FIELDS_MAX} are allowed")
        return super().from_ext({_SHORT[key]: ext[key] for key in ext if key in _SHORT})

    def to_ext(self) -> dict[str, str]:
        """Return the fields as Java writes them."""
        return {_LONG[key]: text for key, text in super().to_ext().items()}


_LONG: Final = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums",
    "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties",
    "j": "reconsumeTimes", "k": "unitMode", "l": "maxReconsumeTimes", "m": "batch", "n": "bname",
}  # fmt: skip
_SHORT: Final = {name: letter for letter, name in _LONG.items()}


class SendAnswerFields(ExtFields, kw_only=True, frozen=True):
    """The fields of an answer with SUCCESS, or with a code that means stored but not replicated."""

    msg_id: str
    """`message_id`; those of a batch are separated by commas."""
    queue_id: Int32
    queue_offset: Int64
    """The queue offset of the message; for a batch, of its first message."""
    transaction_id: str | None = None
    """The message's UNIQ_KEY."""
    region: str | None = msgspec.field(default=None, name="MSG_REGION")
    trace_on: bool | None = msgspec.field(default=None, name="TRACE_ON")


class SendBackFields(RequestFields, kw_only=True, frozen=True):
    """The fields of CONSUMER_SEND_MSG_BACK. The answer has none."""

    offset: Int64
    """The physical offset of the message."""
    group: str
    delay_level: Int32
    """0: the broker chooses; below 0: to the dead letters at once."""
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
