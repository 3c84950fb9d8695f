"""Offsets of consumer groups on their way into the log.

Most commits are one-way and repeated every few seconds. They are collected for 100 ms and written
as one record. A commit with an answer is written at once, together with all that were collected,
and answered once it is applied.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Final, TypeAlias

from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.state_changes import StateChanges
from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.rocketmq import topic_names
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.state_records import GroupOffsets, GroupSet, Offsets
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_node.services.drafts import Outcome

COLLECT_S: Final = 0.1
CHANGED_MAX: Final = 10_000
"""Offsets of one record: its JSON then has less than half a megabyte."""
WAITING_MAX: Final = 10_000
NAMES_BYTES_MAX: Final = 400_000
"""Bytes of the names of groups and topics in one record."""

Key: TypeAlias = tuple[str, str, int]
"""A group, a topic and a queue."""
Done: TypeAlias = Callable[[Outcome], None]
"""Called once when a commit has ended."""


class OffsetCommits:
    """The newest offsets that consumers have sent to this leader."""

    def __init__(self, owner: LogOwner, changes: StateChanges) -> None:
        self._owner = owner
        self._changes = changes
        self._term = owner.term
        self._loop = asyncio.get_running_loop()
        self._changed: dict[Key, int] = {}
        """What is not proposed yet."""
        self._names_bytes = 0
        self._waiting: list[tuple[Key, Done]] = []
        """Those who wait for what is not proposed yet."""
        self._oldest_s = math.inf
        """None of them came earlier."""
        self._proposed: dict[Key, int] = {}
        """What is proposed, and not applied."""
        self._in_flight = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for a commit to be proposed."""
        return not self._waiting

    def newest(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return where a group continues; None if it never said."""
        self._follow_term()
        key = group, topic, queue_id
        for table in (self._changed, self._proposed):
            if key in table:
                return table[key]
        return self._owner.state.consumer_offset(group, topic, queue_id)

    def commit(
        self, key: Key, offset: int, done: Done | None = None, arrived_s: float | None = None
    ) -> None:
        """Take a commit that came at `arrived_s`, or comes now. Raises RefusedError.

        `done` is called once it is committed, or cannot be. Without `done` nobody is told. A
        repeated commit costs nothing.
        """
        self._follow_term()
        group, topic, queue_id = key
        self._check(group, topic, queue_id, offset)
        if done is None and self.newest(group, topic, queue_id) == offset:
            return
        if len(self._waiting) >= WAITING_MAX or self._is_full(key):
            raise RefusedError(ResponseCode.SYSTEM_BUSY, "too many consumer offsets wait")
        if key not in self._changed:
            self._names_bytes += len(group) + len(topic)
        self._changed[key] = offset
        if done is not None:
            self._waiting.append((key, done))
            came_s = self._loop.time() if arrived_s is None else arrived_s
            self._oldest_s = min(self._oldest_s, came_s)
        self._schedule(0.0 if self._waiting else COLLECT_S)

    def drop(self, matches: Callable[[str, str], bool]) -> None:
        """Forget what is not proposed yet of the groups and topics that match: they are deleted."""
        for key in [key for key in self._changed if matches(key[0], key[1])]:
            del self._changed[key]
            self._names_bytes -= len(key[0]) + len(key[1])
        waiting = self._take_waiting()
        self._waiting = [each for each in waiting if not matches(each[0][0], each[0][1])]
        self._end([each for each in waiting if matches(each[0][0], each[0][1])], Outcome.REFUSED)

    def group_change(self, group: str) -> bytearray | None:
        """Return the change that creates a group; None if it exists. Raises RefusedError."""
        if group in self._owner.deleted_groups:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"the consumer group {group} is being deleted; try again",
            )
        config = SubscriptionGroup(group_name=group)
        if group in self._owner.state.tables.groups.configs:
            return None
        if not topic_names.is_valid(group):
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER, f"{group[:150]!r} is no name of a consumer group"
            )
        refusal = self._owner.state.tables.groups.refusal(config)
        if refusal is not None:
            raise RefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, refusal)
        return self._owner.change(GroupSet(config=config))

    def close(self) -> None:
        """Write no further offsets."""
        if self._timer is not None:
            self._timer.cancel()

    def _is_full(self, key: Key) -> bool:
        if key in self._changed:
            return False
        return len(self._changed) >= CHANGED_MAX or self._names_bytes >= NAMES_BYTES_MAX

    def _check(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.group_change(group)
        self._owner.topic(topic)  # refuses one that is being deleted
        if not self._owner.state.tables.topics.has_queue(topic, queue_id):
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER, f"there is no queue {queue_id} of {topic[:150]!r}"
            )
        if offset < 0:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, f"the offset {offset} is below 0")
        refusal = self._owner.state.tables.offsets.refusal(group, topic, queue_id)
        if refusal is not None:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, refusal)

    def _schedule(self, delay_s: float) -> None:
        if self._in_flight:
            return
        if self._timer is not None:
            if delay_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._flush)

    def _flush(self) -> None:
        """Propose all that was collected."""
        self._timer = None
        self._follow_term()
        if not self._changed and not self._waiting:
            return
        changed, self._changed, self._names_bytes = self._changed, {}, 0
        self._proposed = changed
        arrived_s = self._oldest_s if self._waiting else None
        waiting = self._take_waiting()
        by_pair: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for (group, topic, queue_id), offset in changed.items():
            by_pair[group, topic].append((queue_id, offset))
        records = []
        for group in sorted({group for group, _ in by_pair}):
            try:
                created = self.group_change(group)
            except RefusedError:
                continue  # the last place was taken meanwhile; its offsets change nothing
            if created is not None:
                records.append(created)
        groups = [
            GroupOffsets(group=group, topic=topic, offsets=offsets)
            for (group, topic), offsets in by_pair.items()
        ]
        records.append(self._owner.change(Offsets(groups=groups)))
        self._in_flight = True

        def applied(outcome: Outcome) -> None:
            self._in_flight = False
            self._proposed = {}
            self._end(waiting, outcome)
            if self._changed or self._waiting:
                self._schedule(0.0 if self._waiting else COLLECT_S)

        self._changes.propose(records, applied, arrived_s=arrived_s)

    def _follow_term(self) -> None:
        """Forget what an earlier leadership of this member has not written."""
        if self._term == self._owner.term and self._owner.leads:
            return
        self._term = self._owner.term
        self._changed.clear()
        self._proposed = {}
        self._names_bytes = 0
        self._end(self._take_waiting(), Outcome.REFUSED)

    def _take_waiting(self) -> list[tuple[Key, Done]]:
        waiting, self._waiting = self._waiting, []
        self._oldest_s = math.inf
        return waiting

    @staticmethod
    def _end(waiting: list[tuple[Key, Done]], outcome: Outcome) -> None:
        for _, done in waiting:
            done(outcome)
