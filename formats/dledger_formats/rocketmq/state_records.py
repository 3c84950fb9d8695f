"""Changes of a broker's state: topics, groups, consumer offsets, clients and locks of queues.

Each is an ordinary message in queue 0 of `topic_names.STATE_TOPIC`, so it is replicated like every
message. Its body is one JSON object:

    {"v":1,"kind":"topicSet",…}

Positions of delayed messages need no record of their own: see `properties.SCHEDULED`.

A member that does not know a kind must not apply the entries after it: its state would differ from
the others'. So reading is strict, and `encode` refuses what `decode` would refuse.
"""

from typing import Annotated, Final, TypeAlias

import msgspec

from dledger_formats import json_objects
from dledger_formats.json_objects import FormatError
from dledger_formats.rocketmq import topic_names
from dledger_formats.rocketmq.consumer_groups import Consumer
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_formats.rocketmq.topics import TopicConfig

VERSION: Final = 1
BODY_BYTES_MAX: Final = 1024 * 1024
"""The longest body of a state record. More offsets are divided among several records."""

Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=topic_names.NAME_PATTERN)]
ClientId: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
QueueId: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
Offset: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class StateRecord(
    msgspec.Struct, kw_only=True, frozen=True, gc=False, rename="camel", tag_field="kind"
):
    """One change."""

    def check(self) -> None:
        """Raise FormatError if the parts contradict each other or a bound."""


class TopicSet(StateRecord, kw_only=True, frozen=True, tag="topicSet"):
    """A topic was created or has other settings."""

    config: TopicConfig

    def check(self) -> None:
        """Raise FormatError for a bad name or without queues."""
        _check_name(self.config.topic_name)
        if min(self.config.read_queue_nums, self.config.write_queue_nums) < 1:
            raise FormatError(f"the topic {self.config.topic_name} has no queue")


class TopicDeleted(StateRecord, kw_only=True, frozen=True, tag="topicDeleted"):
    """A topic was deleted, with its messages and the offsets and locks of its queues."""

    topic: Name


class GroupSet(StateRecord, kw_only=True, frozen=True, tag="groupSet"):
    """A consumer group was created or has other settings."""

    config: SubscriptionGroup

    def check(self) -> None:
        """Raise FormatError for a bad name."""
        _check_name(self.config.group_name)


class GroupDeleted(StateRecord, kw_only=True, frozen=True, tag="groupDeleted"):
    """The settings of a consumer group were deleted."""

    group: Name
    clean_offset: bool
    """Whether its offsets are deleted, too."""


class GroupOffsets(msgspec.Struct, kw_only=True, frozen=True, gc=False, rename="camel"):
    """Where a consumer group continues in queues of one topic."""

    group: Name
    topic: Name
    offsets: list[tuple[QueueId, Offset]]


class Offsets(StateRecord, kw_only=True, frozen=True, tag="offsets"):
    """Consumer offsets that changed."""

    groups: list[GroupOffsets]


class ClientJoined(StateRecord, kw_only=True, frozen=True, tag="clientJoined"):
    """A client is a member of a consumer group, with these subscriptions."""

    client_id: ClientId
    consumer: Consumer

    def check(self) -> None:
        """Raise FormatError for a bad name."""
        _check_name(self.consumer.group_name)
        for subscription in self.consumer.subscription_data_set:
            _check_name(subscription.topic)


class ClientLeft(StateRecord, kw_only=True, frozen=True, tag="clientLeft"):
    """A client is no longer a member of a consumer group."""

    client_id: ClientId
    group: Name


class QueueLocks(StateRecord, kw_only=True, frozen=True):
    """Queues that a client of a consumer group locks or unlocks."""

    client_id: ClientId
    group: Name
    queues: list[tuple[Name, QueueId]]


class QueuesLocked(QueueLocks, kw_only=True, frozen=True, tag="queuesLocked"):
    """The client holds these queues, no matter which client held them before."""


class QueuesUnlocked(QueueLocks, kw_only=True, frozen=True, tag="queuesUnlocked"):
    """The client no longer holds these queues. Those of another holder are unchanged."""


AnyStateRecord: TypeAlias = (
    TopicSet
    | TopicDeleted
    | GroupSet
    | GroupDeleted
    | Offsets
    | ClientJoined
    | ClientLeft
    | QueuesLocked
    | QueuesUnlocked
)


def encode(record: AnyStateRecord) -> bytes:
    """Encode a record. Raises FormatError if `decode` would refuse it."""
    plain = {"v": VERSION} | msgspec.to_builtins(record)
    body = msgspec.json.encode(plain)
    decode(body)
    return body


def may_delete(body: bytes) -> bool:
    """Return, without decoding, whether a record, or what contains it, may delete something."""
    return b"Deleted" in body or b"\\u" in body


def decode(body: bytes) -> AnyStateRecord:
    """Read a record. Raises FormatError, also for another version and an unknown kind."""
    if len(body) > BODY_BYTES_MAX:
        raise FormatError(f"{len(body)} bytes; at most {BODY_BYTES_MAX} are allowed")
    plain = json_objects.parse(body)
    if not isinstance(plain, dict) or plain.get("v") != VERSION or plain["v"] is True:
        raise FormatError(f"not a state record of version {VERSION}: {body[:60]!r}")
    try:
        record: AnyStateRecord = msgspec.convert(plain, AnyStateRecord)
    except (msgspec.ValidationError, RecursionError) as error:
        raise FormatError(f"state record {plain.get('kind')!r}: {error}") from error
    record.check()
    return record


def _check_name(name: str) -> None:
    if not topic_names.is_valid(name):
        raise FormatError(f"{name[:150]!r} is not the name of a topic or group")
