"""Pulls (codes 11 and 361). The body of an answer with SUCCESS is records end to end."""

from typing import Final

from dledger_formats.protocol.decoding import Int32, Int64
from dledger_formats.rocketmq.ext_fields import ExtFields, RequestFields

TAG: Final = "TAG"
"""The only `expression_type` that is served."""
ALL_TAGS: Final = "*"


class PullFields(RequestFields, kw_only=True, frozen=True):
    """The fields of a pull. Bits of `sys_flag` (`codes.PullSysFlag`) say which of them count."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    """Tags separated by `||`, or `*`. None: the subscription of the group's last heartbeat."""
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None


class PullAnswerFields(ExtFields, kw_only=True, frozen=True):
    """The fields of an answer with SUCCESS, or with one of the codes from 19 to 21."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    topic_sys_flag: Int32 | None = None
    """Only since 5.0, like the next field."""
    group_sys_flag: Int32 | None = None
