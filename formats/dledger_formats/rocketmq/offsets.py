"""Offsets of queues and of consumer groups (codes 14, 15, 29 to 33, 43 and 45)."""

from dledger_formats.protocol.decoding import Int32, Int64
from dledger_formats.rocketmq.ext_fields import ExtFields, RequestFields
from dledger_formats.rocketmq.json_bodies import AnswerBody
from dledger_formats.rocketmq.topics import DataVersion


class QueueFields(RequestFields, kw_only=True, frozen=True):
    """The fields of GET_MIN_OFFSET and GET_EARLIEST_MSG_STORETIME, and of requests below."""

    topic: str
    queue_id: Int32


class QueryConsumerOffsetFields(QueueFields, kw_only=True, frozen=True):
    """QUERY_CONSUMER_OFFSET: where a group continues. QUERY_NOT_FOUND if it has no offset."""

    consumer_group: str
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffsetFields(QueueFields, kw_only=True, frozen=True):
    """UPDATE_CONSUMER_OFFSET, mostly one-way."""

    consumer_group: str
    commit_offset: Int64


class SearchOffsetFields(QueueFields, kw_only=True, frozen=True):
    """SEARCH_OFFSET_BY_TIMESTAMP: the first message that was stored at or after a time, in ms."""

    timestamp: Int64
    boundary_type: str | None = None
    """LOWER or UPPER; None in releases before 5."""


class MaxOffsetFields(QueueFields, kw_only=True, frozen=True):
    """GET_MAX_OFFSET."""

    committed: bool | None = None


class ViewMessageFields(RequestFields, kw_only=True, frozen=True):
    """VIEW_MESSAGE_BY_ID. The body of the answer is the record."""

    offset: Int64
    """The physical offset of the message id."""
    topic: str | None = None


class OffsetAnswerFields(ExtFields, kw_only=True, frozen=True):
    """The answer to codes 14 and 29 to 31; without an offset if nothing was found."""

    offset: Int64 | None = None


class TimestampAnswerFields(ExtFields, kw_only=True, frozen=True):
    """The answer to GET_EARLIEST_MSG_STORETIME."""

    timestamp: Int64


class ConsumerOffsets(AnswerBody, kw_only=True, frozen=True):
    """The answer to GET_ALL_CONSUMER_OFFSET, and the file `consumerOffset.json`."""

    data_version: DataVersion | None = None
    group_topic_map: dict[str, list[str]] | None = None
    offset_table: dict[str, dict[str, Int64]]
    """By `topic@group` and queue id."""


class DelayOffsets(AnswerBody, kw_only=True, frozen=True):
    """The answer to GET_ALL_DELAY_OFFSET, and the file `delayOffset.json`."""

    data_version: DataVersion | None = None
    offset_table: dict[str, Int64]
    """By delay level."""
