"""Requests that wait until the log reaches an index, each answered exactly once.

A leader that proposes entries knows their indexes, but an index alone does not identify the entry
that is committed there: after a change of leaders another entry may have taken its place. So a
waiter is released as committed only while this member still leads the term in which the index was
assigned. Once it does not, every waiter of that term is released as unknown, whatever the committed
index.

This module uses no connections and no clock: the owner of a waiter sends the answer and passes in
the time.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.drain import Drain

ReplyT = TypeVar("ReplyT")

ANSWER_WAIT_S: Final = 2.0
"""Longest wait for an entry to be committed, or applied. Java clients time out after 3 s."""
PENDING_BYTES_MAX: Final = 64 << 20
"""Maximum bytes of the bodies that wait for their quorum in one service."""
_COMPACT_AT: Final = 64


class TimedService(Protocol):
    """A service whose requests may wait."""

    @property
    def next_deadline_s(self) -> float:
        """No deadline of a waiting request is earlier than this time; infinite if none has one."""

    def expire(self, now_s: float) -> None:
        """Answer every request whose deadline has passed."""

    def give_up(self) -> None:
        """Answer every request that still waits: this member stops."""


class Waiter(msgspec.Struct, Generic[ReplyT], frozen=True):
    """Requests that wait for the entries up to `last_index` of one term.

    Either one reply answers for all `entry_count` entries, or there is one reply for each entry,
    in the order of their indexes. A msgspec Struct, because it is built without a Python call.
    """

    replies: Sequence[ReplyT]
    last_index: int
    term: int
    deadline_s: float = math.inf
    entry_count: int = 1
    body_bytes: int = 0

    @property
    def first_index(self) -> int:
        """Index of the first of the entries."""
        return self.last_index - self.entry_count + 1


Released: TypeAlias = tuple[list[Waiter[ReplyT]], list[Waiter[ReplyT]]]
"""The committed waiters by index, and the waiters whose outcome is unknown, oldest first."""


class CommitWaiters(Generic[ReplyT]):
    """A bounded set of waiters. Indexes and deadlines may be added in any order."""

    def __init__(self, count_max: int) -> None:
        """Hold waiters for at most `count_max` entries."""
        self.count_max = count_max
        self.count = 0
        """Number of entries for which the waiters wait."""
        self.body_bytes = 0
        """Bytes of their bodies. A partly committed waiter counts in full until its last entry
        commits.
        """
        self._waiting: OrderedDict[int, Waiter[ReplyT]] = OrderedDict()
        """The waiters by number, oldest first."""
        self._heap: list[tuple[int, int]] = []
        """The index at which a waiter is released next, and its number. Numbers of waiters that
        were released in another way stay here until their index is reached.
        """
        self._deadlines: list[tuple[float, int]] = []
        """The deadlines of the waiters that have one, with their numbers, in a heap like the other.
        """
        self._next_number = 0
        # Bounds over all waiters. They may be too wide after some were released.
        self._lowest_term = self._highest_term = 0
        self._drain = Drain()

    def replies(self) -> Iterator[ReplyT]:
        """Return the replies of all waiters."""
        return (reply for waiter in self._waiting.values() for reply in waiter.replies)

    @property
    def is_full(self) -> bool:
        """Whether there is no room even for a waiter for one entry."""
        return self.count >= self.count_max

    @property
    def room_bytes(self) -> int:
        """How many more bytes of bodies may wait."""
        return PENDING_BYTES_MAX - self.body_bytes

    def has_room(self, count: int, body_bytes: int) -> bool:
        """Return whether `count` more entries with bodies of `body_bytes` in all may wait."""
        return body_bytes <= self.room_bytes and count <= self.count_max - self.count

    async def drained(self) -> None:
        """Return once `notice_drained` has found no waiter."""
        await self._drain.wait(self.count)

    def notice_drained(self) -> None:
        """Let `drained` return if no waiter is left. The owner calls it when it has answered."""
        self._drain.notice(self.count)

    @property
    def next_deadline_s(self) -> float:
        """No waiter's deadline is earlier than this time."""
        return self._deadlines[0][0] if self._waiting and self._deadlines else math.inf

    @property
    def next_index(self) -> float:
        """No waiter is released at an index below this one; infinite if none waits."""
        return self._heap[0][0] if self._waiting else math.inf

    def add(self, waiter: Waiter[ReplyT]) -> None:
        """Add a waiter. Raises ValueError if there is no room; the caller must check first."""
        if waiter.entry_count > self.count_max - self.count:
            raise ValueError(
                f"waiters already wait for {self.count} entries of at most {self.count_max}"
            )
        if self._waiting:
            self._lowest_term = min(self._lowest_term, waiter.term)
            self._highest_term = max(self._highest_term, waiter.term)
        else:
            self._lowest_term = self._highest_term = waiter.term
            self._heap.clear()
            self._deadlines.clear()
        number = self._next_number
        self._next_number += 1
        self._waiting[number] = waiter
        heappush(self._heap, (_releasing_index(waiter), number))
        if waiter.deadline_s < math.inf:
            heappush(self._deadlines, (waiter.deadline_s, number))
            self._drop_released()
        self.count += waiter.entry_count
        self.body_bytes += waiter.body_bytes

    def release(self, committed_index: int, leading_term: int | None) -> Released[ReplyT]:
        """Take the waiters whose outcome is decided.

        `leading_term` is the term that this member leads, None if it leads none. A waiter with one
        reply per entry is released in parts, as the committed index advances.
        """
        unknown: list[Waiter[ReplyT]] = []
        if self._waiting and not self._lowest_term == leading_term == self._highest_term:
            unknown = self._take_if(lambda waiter: waiter.term != leading_term)
        committed: list[Waiter[ReplyT]] = []
        heap = self._heap
        while heap and heap[0][0] <= committed_index:
            number = heappop(heap)[1]
            waiter = self._waiting.get(number)
            if waiter is None:
                continue  # it was already released in another way
            if waiter.last_index > committed_index:
                waiter, rest = _split(waiter, committed_index)
                self._waiting[number] = rest
                heappush(heap, (committed_index + 1, number))
            else:
                del self._waiting[number]
            self._count_released(waiter)
            committed.append(waiter)
        return committed, unknown

    def take_expired(self, now_s: float) -> list[Waiter[ReplyT]]:
        """Take the waiters whose deadline has passed, the first deadline first; their entries may
        still commit later. The cost does not depend on how many others wait.
        """
        late: list[Waiter[ReplyT]] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_s:
            waiter = self._waiting.pop(heappop(deadlines)[1], None)
            if waiter is not None:
                self._count_released(waiter)
                late.append(waiter)
        self._drop_released()
        return late

    def take_all(self) -> list[Waiter[ReplyT]]:
        """Take every waiter."""
        return self._take_if(lambda _: True)

    def take_oldest(self) -> Waiter[ReplyT]:
        """Take the waiter that was added first. Raises KeyError if there is none."""
        _, waiter = self._waiting.popitem(last=False)
        self._count_released(waiter)
        self._drop_released()
        return waiter

    def _count_released(self, waiter: Waiter[ReplyT]) -> None:
        self.count -= waiter.entry_count
        self.body_bytes -= waiter.body_bytes

    def _drop_released(self) -> None:
        """Rebuild the heaps if most of what they hold is about waiters that were released."""
        if max(len(self._heap), len(self._deadlines)) > 2 * len(self._waiting) + _COMPACT_AT:
            self._rebuild()

    def _take_if(self, condition: Callable[[Waiter[ReplyT]], bool]) -> list[Waiter[ReplyT]]:
        numbers = [number for number, waiter in self._waiting.items() if condition(waiter)]
        taken = [self._waiting.pop(number) for number in numbers]
        self._rebuild()
        return taken

    def _rebuild(self) -> None:
        """Rebuild the derived fields from the waiters."""
        waiters = self._waiting.values()
        self.count = sum(waiter.entry_count for waiter in waiters)
        self.body_bytes = sum(waiter.body_bytes for waiter in waiters)
        self._lowest_term = min((waiter.term for waiter in waiters), default=0)
        self._highest_term = max((waiter.term for waiter in waiters), default=0)
        self._heap = [(_releasing_index(one), number) for number, one in self._waiting.items()]
        self._deadlines = [
            (one.deadline_s, number)
            for number, one in self._waiting.items()
            if one.deadline_s < math.inf
        ]
        heapify(self._heap)
        heapify(self._deadlines)


def _releasing_index(waiter: Waiter[ReplyT]) -> int:
    """Return the lowest committed index at which a reply of this waiter can be sent."""
    if len(waiter.replies) == 1:
        return waiter.last_index
    return waiter.last_index - waiter.entry_count + 1


def _split(waiter: Waiter[ReplyT], committed_index: int) -> tuple[Waiter[ReplyT], Waiter[ReplyT]]:
    """Return the part up to `committed_index`, and the rest, which keeps all the bytes."""
    rest_count = waiter.last_index - committed_index
    count = waiter.entry_count - rest_count
    return (
        Waiter(
            replies=waiter.replies[:count],
            last_index=committed_index,
            term=waiter.term,
            deadline_s=waiter.deadline_s,
            entry_count=count,
        ),
        Waiter(
            replies=waiter.replies[count:],
            last_index=waiter.last_index,
            term=waiter.term,
            deadline_s=waiter.deadline_s,
            entry_count=rest_count,
            body_bytes=waiter.body_bytes,
        ),
    )


Answer: TypeAlias = Callable[[DLedgerResponseCode], None]
"""Answers one request with a code."""


def answer_all(waiters: Iterable[Waiter[Answer]], code: DLedgerResponseCode) -> None:
    """Answer every request of these waiters with one code."""
    for waiter in waiters:
        for reply in waiter.replies:
            reply(code)
