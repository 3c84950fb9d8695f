"""Topics: their settings, and the requests that set, delete and list them (codes 17, 21, 215, 216
and 351).
"""

from typing import Any, Final

import msgspec

from dledger_formats.protocol.decoding import Int32, Int64
from dledger_formats.rocketmq.ext_fields import RequestFields
from dledger_formats.rocketmq.json_bodies import AnswerBody, JsonBody, no, zero

SINGLE_TAG: Final = "SINGLE_TAG"


def _single_tag() -> str:
    return SINGLE_TAG


class DataVersion(JsonBody, kw_only=True, frozen=True):
    """The version of a table. Two are equal if all their numbers are."""

    counter: Int64
    """Number of changes."""
    timestamp: Int64
    """Time of the last change, in ms."""
    state_version: Int64 | None = None
    """Since 5.0. Name servers ignore a registration with a lower one."""


class TopicConfig(JsonBody, kw_only=True, frozen=True):
    """The settings of a topic."""

    topic_name: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    """Bits of `codes.Permission`."""
    order: bool = msgspec.field(default_factory=no)
    topic_filter_type: str = msgspec.field(default_factory=_single_tag)
    topic_sys_flag: Int32 = msgspec.field(default_factory=zero)
    attributes: dict[str, str] | None = None
    """Since 5.0."""


class TopicTable(AnswerBody, kw_only=True, frozen=True):
    """The answer to GET_ALL_TOPIC_CONFIG, and a part of REGISTER_BROKER."""

    data_version: DataVersion
    topic_config_table: dict[str, TopicConfig]
    mapping_data_version: DataVersion | None = None
    """Since 5.0, like the next two; for static topics, which this project does not have."""
    topic_queue_mapping_detail_map: dict[str, Any] | None = None
    topic_queue_mapping_info_map: dict[str, Any] | None = None


class CreateTopicFields(RequestFields, kw_only=True, frozen=True):
    """The fields of UPDATE_AND_CREATE_TOPIC."""

    topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    default_topic: str | None = None
    topic_sys_flag: Int32 | None = None
    order: bool | None = None
    attributes: str | None = None
    force: bool | None = None


class TopicFields(RequestFields, kw_only=True, frozen=True):
    """The fields of every request about one topic."""

    topic: str
    accept_standard_json_only: bool | None = None
    """Only in GET_ROUTEINFO_BY_TOPIC, since 4.9.4. We always write standard JSON."""
    lo: bool | None = None
    """Only in GET_TOPIC_CONFIG: it is about static topics, which this project does not have."""
    cluster_name: str | None = None
    """Only in DELETE_TOPIC_IN_NAMESRV, since 5.0."""
