"""Which client of a consumer group may consume a queue in order.

The log says which client holds a queue; a client learns that it holds one once that is applied.
Only the leader knows for how long: 60 s after the last request, which clients repeat every 20 s.
Renewals are not written. A new leader gives every holder in the log 60 s, since it does not know
their last requests. A client counts on its lock for 30 s after an answer, so two clients consume
one queue only if a leader that lost its quorum goes on for more than 30 s.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dledger_broker.leading.log_owner import NO_TERM, LogOwner
from dledger_broker.leading.record_draft import RecordDraft
from dledger_broker.leading.state_changes import StateChanges
from dledger_broker.state.groups import LOCKS_MAX, Queue
from dledger_formats.rocketmq.state_records import QueuesLocked, QueuesUnlocked
from dledger_node.services.drafts import Outcome

LEASE_S: Final = 60.0
TICK_S: Final = 1.0
SWEPT_MAX: Final = 1000
"""Locks that one tick looks at, so that it takes a millisecond."""
FREED_MAX: Final = 100
"""Queues that one tick unlocks, so that it takes a few milliseconds."""
UNLOCKS_MAX: Final = 20
"""Proposals that one tick makes for that: one for each client and group."""

Locked: TypeAlias = Callable[[Sequence[Queue] | None], None]
"""Called with the queues that a client holds; None if the change could not be committed."""


@dataclass(slots=True)
class Pending:
    """A change of a queue's holder that may not be applied yet."""

    holder: str | None
    changes: int
    """The number of proposals that have not ended."""
    doubtful: list[RecordDraft]
    """Proposals that have ended, and may still be applied."""


class QueueLocks:
    """The holders of queues, while this member leads."""

    def __init__(self, owner: LogOwner, changes: StateChanges, clock: Callable[[], float]) -> None:
        """`clock` returns seconds that never go back."""
        self._owner = owner
        self._changes = changes
        self._clock = clock
        self._term = NO_TERM
        self._until_s: dict[Queue, float] = {}
        """The times until which locks last. Locks that the log had before last until
        `_adopted_until_s`, and are missing here until a tick has looked at them.
        """
        self._adopted_until_s = 0.0
        self._unadopted = False
        """Whether no tick has listed the locks that the log had before."""
        self._unswept: list[Queue] = []
        """What is left of a round over all locks, the next one last."""
        self._pending: dict[Queue, Pending] = {}
        self._next_round_s = 0.0

    def lock(
        self,
        client_id: str,
        group: str,
        queues: Iterable[Queue],
        done: Locked,
        arrived_s: float | None = None,
    ) -> None:
        """Lock for a client those of the queues that it can hold. Raises FormatError.

        The request came at `arrived_s`, or now.
        """
        self._follow_term()
        now_s = self._clock()
        topics, holders = self._owner.state.tables.topics, self._owner.state.tables.groups.holders
        held: list[Queue] = []
        wanted: list[Queue] = []
        for queue in dict.fromkeys(queues):
            if not topics.has_queue(queue.topic, queue.queue_id):
                continue
            holder = self._holder(queue)
            if holder == client_id and self._pending_change(queue) is None:
                held.append(queue)
                self._until_s[queue] = now_s + LEASE_S
            elif (holder in (None, client_id) or self._lasts_until_s(queue) <= now_s) and len(
                holders
            ) + len(self._pending) + len(wanted) < LOCKS_MAX:
                wanted.append(queue)
        if not wanted:
            done(held)
            return

        def ended(outcome: Outcome) -> None:
            if outcome is not Outcome.COMMITTED:
                done(None)
                return
            got = [queue for queue in wanted if self._holder(queue) == client_id]
            done(held + got)

        record = QueuesLocked(client_id=client_id, group=group, queues=_places(wanted))
        self._propose(self._owner.change(record), wanted, client_id, ended, arrived_s)
        for queue in wanted:
            self._until_s[queue] = now_s + LEASE_S

    def unlock(
        self,
        client_id: str,
        group: str,
        queues: Iterable[Queue],
        done: Callable[[Outcome], None],
        arrived_s: float | None = None,
    ) -> None:
        """Unlock those of the queues that a client holds. Raises FormatError."""
        self._follow_term()
        held = [queue for queue in dict.fromkeys(queues) if self._holder(queue) == client_id]
        if not held:
            done(Outcome.COMMITTED)
            return
        record = QueuesUnlocked(client_id=client_id, group=group, queues=_places(held))
        self._propose(self._owner.change(record), held, None, done, arrived_s)

    @property
    def is_sweeping(self) -> bool:
        """Return whether the next tick looks at further locks."""
        return self._owner.is_proven and bool(self._unswept or self._unadopted)

    def tick(self) -> None:
        """Unlock the queues whose holders are silent. Call it on the leader and on the others.

        One call looks at few of the locks.
        """
        if not self._owner.is_proven:
            return
        self._follow_term()
        now_s = self._clock()
        if not self._unswept and not self._begins_sweep(now_s):
            return
        freed: dict[tuple[str, str], list[Queue]] = {}
        count = 0
        for _ in range(min(SWEPT_MAX, len(self._unswept))):
            queue = self._unswept.pop()
            until_s = self._until_s.setdefault(queue, self._adopted_until_s)
            if until_s > now_s or self._pending_change(queue) is not None:
                continue
            holder = self._holder(queue)
            if holder is None:
                del self._until_s[queue]
                continue
            freed.setdefault((holder, queue.group), []).append(queue)
            count += 1
            if count == FREED_MAX or len(freed) == UNLOCKS_MAX:
                break  # the next tick goes on
        for (client_id, group), queues in freed.items():
            self.unlock(client_id, group, queues, lambda _: None)

    def _begins_sweep(self, now_s: float) -> bool:
        """Return whether a round over all locks begins now, with locks that this tick looks at."""
        if self._unadopted:
            self._unadopted = False
            self._unswept = list(self._owner.state.tables.groups.holders)
        elif now_s >= self._next_round_s:
            self._unswept = list(self._until_s)
        else:
            return False
        self._next_round_s = now_s + TICK_S
        return len(self._unswept) <= SWEPT_MAX  # listing many takes a turn of its own

    def _lasts_until_s(self, queue: Queue) -> float:
        """Return until when the lock of a held queue lasts."""
        return self._until_s.get(queue, self._adopted_until_s)

    def _holder(self, queue: Queue) -> str | None:
        """Return the client that holds a queue once all proposals are applied; None if none."""
        pending = self._pending_change(queue)
        return pending.holder if pending else self._owner.state.holder(*queue)

    def _pending_change(self, queue: Queue) -> Pending | None:
        """Return the change of a queue's holder that may not be applied yet; None if all are."""
        pending = self._pending.get(queue)
        if pending is not None and not pending.changes:
            applied = self._owner.state.tables.last_physical_offset
            if all(draft.is_applied(applied) for draft in pending.doubtful):
                del self._pending[queue]
                return None
        return pending

    def _propose(
        self,
        record: bytearray,
        queues: Sequence[Queue],
        holder: str | None,
        done: Callable[[Outcome], None],
        arrived_s: float | None,
    ) -> None:
        """Propose that `holder` holds queues, or, if it is None, that no client does."""
        before = [self._holder(queue) for queue in queues]
        pending = self._pending
        for queue in queues:
            entry = pending.setdefault(queue, Pending(None, 0, []))
            entry.holder = holder
            entry.changes += 1

        def ended(outcome: Outcome) -> None:
            for queue, earlier in zip(queues, before, strict=True):
                entry = pending[queue]
                if outcome is Outcome.REFUSED and entry.holder == holder:
                    entry.holder = earlier
                entry.changes -= 1
                if not entry.changes and not entry.doubtful:
                    del pending[queue]
            done(outcome)

        def in_doubt(draft: RecordDraft) -> None:
            for queue in queues:
                pending[queue].doubtful.append(draft)

        self._changes.propose([record], ended, arrived_s=arrived_s, in_doubt=in_doubt)

    def _follow_term(self) -> None:
        """Start with the holders of the state if this member has become the leader."""
        if self._term == self._owner.term:
            return
        self._term = self._owner.term
        self._pending = {}
        self._adopted_until_s = self._clock() + LEASE_S
        self._until_s, self._unswept = {}, []
        self._unadopted = True


def _places(queues: Iterable[Queue]) -> list[tuple[str, int]]:
    return [(queue.topic, queue.queue_id) for queue in queues]
