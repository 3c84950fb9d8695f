"""Random logs of a broker, and the state that follows from them by a simple model."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from hypothesis import strategies as st

from dledger_broker.queues.checkpoint import Mark
from dledger_formats.log import disk
from dledger_formats.rocketmq import message_record, properties, state_records
from dledger_formats.rocketmq.codes import MessageSysFlag
from dledger_formats.rocketmq.consume_queue import Unit, tags_code
from dledger_formats.rocketmq.consumer_groups import Consumer, Subscription
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_formats.rocketmq.state_records import (
    AnyStateRecord,
    ClientJoined,
    ClientLeft,
    GroupDeleted,
    GroupOffsets,
    GroupSet,
    Offsets,
    QueuesLocked,
    QueuesUnlocked,
    TopicDeleted,
    TopicSet,
)
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_formats.rocketmq.topic_names import SCHEDULE_TOPIC, STATE_TOPIC
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.state_machine.machine import CommittedEntry

BORN_HOST_IPV6 = int(MessageSysFlag.BORN_HOST_IPV6)
STORE_HOST_IPV6 = int(MessageSysFlag.STORE_HOST_IPV6)
TRANSACTION_PREPARED = int(MessageSysFlag.TRANSACTION_PREPARED)
STORED_AT_MS = 1_795_306_882_675


class Send(NamedTuple):
    """A client sends a message."""

    topic: str
    queue_id: int
    tag: str = ""
    body: bytes = b"body"
    hosts: int = 0
    """The bits of sysFlag that say which of the two hosts have addresses of IPv6."""


class Delayed(NamedTuple):
    """A message waits at a delay level."""

    level: int


class Delivered(NamedTuple):
    """The oldest waiting message of a level is delivered, if there is one."""

    level: int


class Prepared(NamedTuple):
    """A transaction that was prepared, as Java's logs have it: it is in no queue."""

    topic: str


class OwnEntry(NamedTuple):
    """An entry that a leader writes for itself."""


Step: TypeAlias = Send | Delayed | Delivered | Prepared | OwnEntry | AnyStateRecord


class Log:
    """A log under construction: its entries, and the model."""

    def __init__(self) -> None:
        self.entries: list[CommittedEntry | None] = []
        """None for an entry that a leader wrote for itself."""
        self.units: dict[tuple[str, int], list[Unit]] = {}
        """The model: every queue with its units."""
        self.delivered = dict.fromkeys(range(1, 19), 0)
        """The model: how many messages of each delay level were delivered."""
        self._pos = 0

    def extend(self, steps: Sequence[Step]) -> "Log":
        """Append an entry for each step; return this log."""
        for step in steps:
            self._step(step)
        return self

    def batch(self, first: int, end: int) -> list[CommittedEntry]:
        """Return the messages among these entries."""
        return [entry for entry in self.entries[first:end] if entry is not None]

    def mark(self, index: int) -> Mark | None:
        """Return the mark of an entry; None if there is no such entry."""
        if not 0 <= index < len(self.entries):
            return None
        return Mark(index, 1, index * 100, index + 7)

    def _step(self, step: Step) -> None:
        match step:
            case Send(topic, queue_id, tag, body, hosts):
                self._append(topic, queue_id, {"TAGS": tag} if tag else {}, body, hosts)
            case Delayed(level):
                self._append(SCHEDULE_TOPIC, level - 1, {"DELAY": str(level)})
            case Delivered(level):
                offset = self.delivered[level]
                if offset < len(self.units.get((SCHEDULE_TOPIC, level - 1), ())):
                    self._append("T", 0, {properties.SCHEDULED: f"{level} {offset}"})
                    self.delivered[level] += 1
            case Prepared(topic):
                self._append(topic, 0, {}, sys_flag=4)
            case OwnEntry():
                self.entries.append(None)
                self._pos += disk.ENTRY_HEADER_SIZE
            case record:
                self._append(STATE_TOPIC, 0, {}, state_records.encode(record))
                if isinstance(record, TopicDeleted):
                    for queue in [queue for queue in self.units if queue[0] == record.topic]:
                        del self.units[queue]

    def _append(
        self,
        topic: str,
        queue_id: int,
        pairs: dict[str, str],
        body: bytes = b"",
        sys_flag: int = 0,
    ) -> None:
        queued = not sys_flag & TRANSACTION_PREPARED
        units = self.units.setdefault((topic, queue_id), []) if queued else []
        record = MessageRecord(
            topic, queue_id, len(units), self._pos + disk.ENTRY_HEADER_SIZE, body,
            properties.encode(pairs).encode(), 0, sys_flag,
            born_host=bytes(20 if sys_flag & BORN_HOST_IPV6 else 8),
            store_timestamp=STORED_AT_MS + len(self.entries),
            store_host=bytes(20 if sys_flag & STORE_HOST_IPV6 else 8),
        )  # fmt: skip
        raw = bytes(message_record.encode(record))
        self.entries.append(CommittedEntry(len(self.entries), raw))
        self._pos += disk.ENTRY_HEADER_SIZE + len(raw)
        if queued:
            units.append(Unit(record.physical_offset, len(raw), tags_code(record)))


TOPICS = ("T", "U", "%RETRY%g")
GROUPS = ("g", "h")
CLIENTS = ("10.0.0.1@1", "10.0.0.2@2")
_topics, _groups, _clients = map(st.sampled_from, (TOPICS, GROUPS, CLIENTS))
_queues = st.integers(0, 3)


def _topic_set(topic: str, queues: int, perm: int) -> TopicSet:
    return TopicSet(
        config=TopicConfig(
            topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )
    )


def _joined(client_id: str, group: str, topic: str, version: int) -> ClientJoined:
    subscription = Subscription(topic=topic, sub_string="*", sub_version=version)
    return ClientJoined(
        client_id=client_id,
        consumer=Consumer(
            group_name=group,
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=[subscription],
        ),
    )


def _locks(kind: Callable[..., AnyStateRecord]) -> st.SearchStrategy[AnyStateRecord]:
    queues = st.lists(st.tuples(_topics, _queues), max_size=3)
    return st.builds(kind, client_id=_clients, group=_groups, queues=queues)


CHANGES: st.SearchStrategy[AnyStateRecord] = st.one_of(
    st.builds(_topic_set, _topics, st.integers(1, 4), st.integers(0, 7)),
    st.builds(TopicDeleted, topic=_topics),
    st.builds(
        GroupSet,
        config=st.builds(SubscriptionGroup, group_name=_groups, retry_max_times=st.integers(0, 16)),
    ),
    st.builds(GroupDeleted, group=_groups, clean_offset=st.booleans()),
    st.builds(
        Offsets,
        groups=st.lists(
            st.builds(
                GroupOffsets,
                group=_groups,
                topic=_topics,
                offsets=st.lists(st.tuples(_queues, st.integers(0, 99)), max_size=3),
            ),
            max_size=2,
        ),
    ),
    st.builds(_joined, _clients, _groups, _topics, st.integers(0, 3)),
    st.builds(ClientLeft, client_id=_clients, group=_groups),
    _locks(QueuesLocked),
    _locks(QueuesUnlocked),
)
HOSTS: st.SearchStrategy[int] = st.sampled_from(
    [0, BORN_HOST_IPV6, STORE_HOST_IPV6, BORN_HOST_IPV6 | STORE_HOST_IPV6]
)
_sends = st.builds(Send, _topics, _queues, st.sampled_from(["", "TagA", "TagB"]), hosts=HOSTS)
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        _sends,
        _sends,
        st.builds(Delayed, st.integers(1, 3)),
        st.builds(Delivered, st.integers(1, 3)),
        st.builds(Prepared, _topics),
        st.builds(OwnEntry),
        CHANGES,
        CHANGES,
    ),
    max_size=40,
)
CUTS = st.lists(st.integers(0, 40), max_size=5)


def batches(log: Log, cuts: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first index and the end of each batch, from places to cut the log at."""
    size = len(log.entries)
    borders = sorted({0, size, *(cut for cut in cuts if cut < size)})
    return list(pairwise(borders))
