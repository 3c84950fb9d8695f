"""The judge of brokers: every answer to a client, compared with the committed log."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from dledger_formats.rocketmq import topic_names
from dledger_sim.judges.broker_log import BrokerLog, Message, Place
from dledger_sim.judges.violation import ViolationError


class Clock(Protocol):
    """The time of the run."""

    now_us: int


class OffsetKey(NamedTuple):
    """A group and a queue in which it continues. Each group here has one client."""

    group: str
    topic: str
    queue_id: int


@dataclass(slots=True)
class Commits:
    """The offsets that a client has committed for one key, each higher than the last."""

    asked: int = -1
    acknowledged: int = -1
    doubtful: set[int] = field(default_factory=set)
    """Commits whose outcome is unknown, and which may still take effect."""
    gone: int = -1
    """Commits up to this one were acknowledged before the topic or the group was deleted."""
    perhaps_gone: int = -1
    """Commits up to this one may be gone, since they were requested before the deletion ended."""

    def allows(self, offset: int) -> bool:
        """Return whether the group may continue there; -1 means no offset."""
        if offset < 0:
            return self.acknowledged <= self.perhaps_gone
        if offset in self.doubtful:
            return True
        return max(self.acknowledged, self.gone + 1) <= offset <= self.asked


class Before(NamedTuple):
    """What is known of a key when a query of its offset begins."""

    acknowledged: int
    """The last offset whose commit is acknowledged; -1 without one."""
    gone: int
    """The last offset that is gone with its topic or its group."""


@dataclass(slots=True)
class Holding:
    """A client that relies on its lock of a queue."""

    client: int
    until_us: int


class BrokerRules:
    """Compares answers with the log."""

    def __init__(self, log: BrokerLog, clock: Clock) -> None:
        self.counts: Counter[str] = Counter()
        """Numbers of checks, by name."""
        self._log = log
        self._clock = clock
        self._refused: set[bytes] = set()
        self._commits: defaultdict[OffsetKey, Commits] = defaultdict(Commits)
        self._holdings: dict[int, Holding] = {}
        self._perhaps_deleted: set[str] = set()
        """Topics and groups whose deletion may still take effect at any time."""

    # -- sends -------------------------------------------------------------------------------------

    def acknowledged(
        self, keys: Sequence[bytes], level: int, place: Place, offset: int, positions: Sequence[int]
    ) -> None:
        """Check the answer to a send: its messages are committed at these positions of the log, and
        the first one is at this queue offset. Others may lie between those of a batch that a leader
        wrote in part and the next one completed.
        """
        if level:
            place = Place(topic_names.SCHEDULE_TOPIC, level - 1)
        for key, position in zip(keys, positions, strict=True):
            stored = self._log.stored.get((key, level > 0))
            if stored is None:
                raise ViolationError(
                    "an acknowledged message is committed", f"{key!r}, acknowledged at {position}"
                )
            if stored.record.physical_offset != position:
                raise ViolationError(
                    "an acknowledged message is at its position",
                    f"{key!r} at {position}, not at {stored.record.physical_offset}",
                )
        first = self._log.stored[keys[0], level > 0].record
        if (first.topic, first.queue_id, first.queue_offset) != (*place, offset):
            raise ViolationError(
                "an acknowledged message is at its queue offset",
                f"{keys[0]!r} at {offset} of {place}",
            )
        self.counts["sends_acknowledged"] += len(keys)

    def returned(self, key: bytes, topic: str) -> None:
        """Check the answer to a consumer that has returned a message: it is committed once more, in
        this topic.
        """
        waits = topic == topic_names.SCHEDULE_TOPIC
        stored = self._log.stored.get((key, waits))
        if stored is None or stored.record.topic != topic:
            raise ViolationError("an acknowledged return is committed", f"{key!r} in {topic}")
        self.counts["returns_acknowledged"] += 1

    def refused(self, keys: Sequence[bytes]) -> None:
        """Note a refusal: the messages are not stored, and never will be."""
        self._refused.update(keys)
        self.counts["sends_refused"] += len(keys)

    # -- pulls -------------------------------------------------------------------------------------

    def pulled(
        self,
        place: Place,
        offset: int,
        records: Sequence[bytes],
        next_offset: int,
        applied_index: int,
    ) -> None:
        """Check the answer to a pull of all tags: it has the committed messages, none left out, and
        none of those that were deleted up to `applied_index`, which the member had applied.
        """
        queue = self._log.queue(place)
        queues = self._log.readable(place, applied_index)
        if not any(_holds(each, offset, records) for each in queues):
            raise ViolationError(
                "a pull returns the committed messages of its queue",
                f"{len(records)} from {offset} of {place}, which has {len(queue)}",
            )
        if next_offset != offset + len(records):
            raise ViolationError(
                "a pull returns the committed messages of its queue",
                f"it goes on at {next_offset} after {len(records)} from {offset} of {place}",
            )
        self.counts["messages_pulled"] += len(records)

    def moved(self, place: Place, offset: int, next_offset: int, begin_index: int) -> None:
        """Check that a consumer is sent on only to the first message that its member's log has,
        which begins with the entry `begin_index`.
        """
        queue = self._log.queue(place)
        if self._log.deleted_at[place.topic]:
            self.counts["pulls_moved_after_deletions"] += 1
            return  # a queue of the same name has begun since
        if next_offset < offset:
            raise ViolationError(
                "a consumer is not sent back", f"from {offset} to {next_offset} of {place}"
            )
        if next_offset > len(queue) or queue[next_offset - 1].index >= begin_index:
            raise ViolationError(
                "a pull leaves no message out",
                f"it is sent from {offset} to {next_offset} of {place}; the log begins at "
                f"{begin_index}",
            )
        self.counts["pulls_moved"] += 1

    # -- consumer offsets --------------------------------------------------------------------------

    def commit_begins(self, key: OffsetKey) -> int:
        """Return the next offset that the client of a key commits."""
        commits = self._commits[key]
        commits.asked += 1
        commits.doubtful.add(commits.asked)
        return commits.asked

    def commit_ends(self, key: OffsetKey, offset: int, *, acknowledged: bool) -> None:
        """Note the answer to a commit; without one, the commit may still take effect."""
        if acknowledged:
            commits = self._commits[key]
            commits.doubtful.discard(offset)
            commits.acknowledged = max(commits.acknowledged, offset)
            self.counts["commits_acknowledged"] += 1

    def query_begins(self, key: OffsetKey) -> Before:
        """Return what is known of a key when a query begins."""
        commits = self._commits[key]
        return Before(commits.acknowledged, commits.gone)

    def queried(self, key: OffsetKey, offset: int | None, before: Before) -> None:
        """Check that a client asked for this offset to be committed, once, and that it was not
        deleted, nor a later one acknowledged, before the query began.
        """
        commits = self._commits[key]
        if offset is not None and not 0 <= offset <= commits.asked:
            raise ViolationError("a consumer offset is one that was committed", f"{key}: {offset}")
        if offset is not None and offset <= before.gone and offset not in commits.doubtful:
            raise ViolationError(
                "the offsets of a deleted topic or group are gone", f"{key}: {offset}"
            )
        self.counts["offsets_queried"] += 1
        if not self._perhaps_deleted.isdisjoint((key.group, key.topic)) or (
            before.acknowledged <= commits.perhaps_gone
        ):
            return  # a deletion has taken the offset, or may have
        if offset not in commits.doubtful and (offset is None or offset < before.acknowledged):
            raise ViolationError(
                "a query finds what was acknowledged before it",
                f"{key} is at {offset}; {before.acknowledged} was acknowledged",
            )

    def judge_offset(self, key: OffsetKey, offset: int | None) -> None:
        """Check where a group continues at the end: an acknowledged commit survives."""
        commits = self._commits[key]
        if offset is None and not self._perhaps_deleted.isdisjoint((key.group, key.topic)):
            return
        if not commits.allows(-1 if offset is None else offset):
            raise ViolationError(
                "an acknowledged offset survives",
                f"{key} is at {offset}; {commits.acknowledged} was acknowledged",
            )

    @property
    def offset_keys(self) -> list[OffsetKey]:
        """Return all keys with a committed offset."""
        return [key for key, commits in self._commits.items() if commits.acknowledged >= 0]

    # -- deletions ---------------------------------------------------------------------------------

    def deletion_begins(self, name: str) -> dict[OffsetKey, int]:
        """Return the acknowledged offsets that the deletion of a topic or a group removes."""
        self._perhaps_deleted.add(name)
        return {
            key: commits.acknowledged
            for key, commits in self._commits.items()
            if name in (key.group, key.topic)
        }

    def deletion_ends(self, name: str, before: dict[OffsetKey, int], *, is_last: bool) -> None:
        """Note that a deletion has taken effect. Offsets that were committed meanwhile may be gone
        with it. `is_last` says that no other deletion of this name may still take effect.
        """
        if is_last:
            self._perhaps_deleted.discard(name)
        for key, acknowledged in before.items():
            self._commits[key].gone = max(self._commits[key].gone, acknowledged)
        for key, commits in self._commits.items():
            if name in (key.group, key.topic):
                commits.perhaps_gone = max(commits.perhaps_gone, commits.asked)
        self.counts["deletions_acknowledged"] += 1

    # -- locks -------------------------------------------------------------------------------------

    def locked(self, client: int, queue_ids: Sequence[int], valid_us: int) -> None:
        """Check that no other client relies on its locks of these queues."""
        now_us = self._clock.now_us
        for queue_id in queue_ids:
            before = self._holdings.get(queue_id)
            if before is not None and before.client != client and before.until_us > now_us:
                raise ViolationError(
                    "one client holds the lock of a queue",
                    f"c{client} and c{before.client} hold queue {queue_id}",
                )
            self._holdings[queue_id] = Holding(client, now_us + valid_us)
        self.counts["locks"] += len(queue_ids)

    def unlocked(self, client: int, kept: Sequence[int] = ()) -> None:
        """Note that a client no longer relies on its other locks."""
        for queue_id, holding in list(self._holdings.items()):
            if holding.client == client and queue_id not in kept:
                del self._holdings[queue_id]

    # -- the end -----------------------------------------------------------------------------------

    def judge_end(self) -> None:
        """Check that no refused message is in the log."""
        self.counts["delayed"] += self._log.delayed_count
        for key, waits in self._log.stored:
            if key in self._refused:
                raise ViolationError(
                    "no refused message is stored", f"{key!r}, {'delayed' if waits else 'stored'}"
                )


def _holds(queue: Sequence[Message], offset: int, records: Sequence[bytes]) -> bool:
    found = [message.raw for message in queue[offset : offset + len(records)]]
    return found == [bytes(record) for record in records]
