"""Offsets of consumer groups on their way into the log.

Most commits are one-way and repeated every few seconds. They are collected for 100 ms and written
as one record. A commit with an answer is written at once, together with all that were collected,
and answered once it is applied, since the state may have no room for it by then. A record takes a
limited number of offsets; the next record has the rest, in the order in which the keys came. One
record at a time is on its way, so a slow quorum delays the next one by up to 2.5 s (`WAIT_S`).
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
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
"""Offsets that wait for a record."""
RECORD_OFFSETS_MAX: Final = 500
"""Offsets of one record: making it takes 2 to 4 ms of the event loop."""
NEW_GROUPS_MAX: Final = 50
"""Groups that are created together with one record: making their settings takes 3 to 5 ms."""
WAITING_MAX: Final = 10_000
NAMES_BYTES_MAX: Final = 400_000
"""Bytes of the names of groups and topics of the offsets that wait."""

Key: TypeAlias = tuple[str, str, int]
"""A group, a topic and a queue."""
Done: TypeAlias = Callable[[Outcome | RefusedError], None]
"""Called once when a commit has ended, with the outcome, or with why the state did not take it."""
Waiting: TypeAlias = dict[Key, list[tuple[Done, float]]]
"""Callers that wait, by key, and when they came, by the loop's clock."""


class OffsetCommits:
    """The newest offsets that consumers have sent to this leader."""

    def __init__(self, owner: LogOwner, changes: StateChanges) -> None:
        self._owner = owner
        self._changes = changes
        self._term = owner.term
        self._loop = asyncio.get_running_loop()
        self._changed: dict[Key, int] = {}
        """Offsets that are not proposed yet."""
        self._names_bytes = 0
        self._waiting: Waiting = defaultdict(list)
        """Callers that wait for unproposed offsets, and when they came."""
        self._waiting_count = 0
        self._proposed: dict[Key, int] = {}
        """Offsets that are proposed, and not applied yet."""
        self._in_flight = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no caller waits for a commit to be proposed."""
        return not self._waiting

    def newest(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset where a group continues; None if it never committed one."""
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

        `done` is called once it is applied, or cannot be. A repeated commit without `done` costs
        nothing.
        """
        self._follow_term()
        group, topic, queue_id = key
        self._check(group, topic, queue_id, offset)
        if done is None and self.newest(group, topic, queue_id) == offset:
            return
        if self._waiting_count >= WAITING_MAX or self._is_full(key):
            raise RefusedError(ResponseCode.SYSTEM_BUSY, "too many consumer offsets wait")
        if key not in self._changed:
            self._names_bytes += len(group) + len(topic)
        self._changed[key] = offset
        if done is not None:
            came_s = self._loop.time() if arrived_s is None else arrived_s
            self._waiting[key].append((done, came_s))
            self._waiting_count += 1
        self._schedule(0.0 if self._waiting else COLLECT_S)

    def drop(self, matches: Callable[[str, str], bool]) -> None:
        """Forget the unproposed offsets of the groups and topics that match: they are deleted."""
        dropped = [key for key in self._changed if matches(key[0], key[1])]
        self._end(self._take(dropped), Outcome.REFUSED)

    def group_change(self, group: str) -> bytearray | None:
        """Return the change that creates a group; None if it exists. Raises RefusedError.

        The group gets the settings that an administrator has sent meanwhile, if there are any: the
        defaults, written after them, would replace them.
        """
        if group in self._owner.deleted_groups:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"the consumer group {group} is being deleted; try again",
            )
        if group in self._owner.state.tables.groups.configs:
            return None
        config = self._owner.group(group) or SubscriptionGroup(group_name=group)
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
        end_offset = self._owner.end_offset(topic, queue_id)
        if offset > end_offset:  # a message's offset is not known before its entry is written
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"the offset {offset} is beyond {end_offset}, the end of queue {queue_id} of "
                f"{topic[:150]!r}",
            )
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
        """Propose the offsets that were collected first, as many as one record takes."""
        self._timer = None
        self._follow_term()
        if not self._changed:
            return
        changed, records = self._next_record()
        waiting = self._take(changed)
        rest = bool(self._changed)
        self._proposed = changed
        by_pair: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for (group, topic, queue_id), offset in changed.items():
            by_pair[group, topic].append((queue_id, offset))
        groups = [
            GroupOffsets(group=group, topic=topic, offsets=offsets)
            for (group, topic), offsets in by_pair.items()
        ]
        records.append(self._owner.change(Offsets(groups=groups)))
        self._in_flight = True

        def applied(outcome: Outcome) -> None:
            self._in_flight = False
            self._proposed = {}
            if outcome is Outcome.COMMITTED:
                self._end_applied(waiting, changed)
            else:
                self._end(waiting, outcome)
            if self._changed:
                self._schedule(0.0 if rest or self._waiting else COLLECT_S)

        came_s = [each_s for callers in waiting.values() for _, each_s in callers]
        self._changes.propose(records, applied, arrived_s=min(came_s, default=None))

    def _next_record(self) -> tuple[dict[Key, int], list[bytearray]]:
        """Return the offsets of the next record, and the changes that create their groups."""
        changed: dict[Key, int] = {}
        records: list[bytearray] = []
        new_groups: set[str] = set()
        configs = self._owner.state.tables.groups.configs
        for key, offset in self._changed.items():
            if len(changed) == RECORD_OFFSETS_MAX:
                break
            group = key[0]
            if group not in configs and group not in new_groups:
                if len(new_groups) == NEW_GROUPS_MAX:
                    break
                new_groups.add(group)
                # The last place may be taken meanwhile; its offsets then change nothing.
                with suppress(RefusedError):
                    records += filter(None, [self.group_change(group)])
            changed[key] = offset
        return changed, records

    def _take(self, keys: Collection[Key]) -> Waiting:
        """Remove the unproposed offsets of these keys; return the callers that wait for them."""
        waiting = {}
        for key in keys:
            del self._changed[key]
            self._names_bytes -= len(key[0]) + len(key[1])
            callers = self._waiting.pop(key, None)
            if callers is not None:
                waiting[key] = callers
                self._waiting_count -= len(callers)
        return waiting

    def _end_applied(self, waiting: Waiting, changed: Mapping[Key, int]) -> None:
        """Answer whether the state took each offset; its last places may have been taken before."""
        for key, callers in waiting.items():
            refusal = self._refusal(key, changed[key])
            for done, _ in callers:
                done(Outcome.COMMITTED if refusal is None else refusal)

    def _refusal(self, key: Key, offset: int) -> RefusedError | None:
        """Return why an offset whose record is applied is not in the state; None if it is."""
        if self._owner.state.consumer_offset(*key) == offset:
            return None
        try:
            self._check(*key, offset)
        except RefusedError as error:
            return error
        return RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"the offset of {key[0]} was changed by somebody else, or deleted; send it again",
        )

    def _follow_term(self) -> None:
        """Forget what an earlier leadership of this member has not written."""
        if self._term == self._owner.term and self._owner.leads:
            return
        self._term = self._owner.term
        self._proposed = {}
        self._end(self._take(list(self._changed)), Outcome.REFUSED)

    @staticmethod
    def _end(waiting: Waiting, outcome: Outcome) -> None:
        for callers in waiting.values():
            for done, _ in callers:
                done(outcome)
