"""Which message of each queue is the first one in a log whose front was removed.

The units of a queue cannot show it. A zeroed unit looks like that of a removed message that was
never built again, and a unit that names an earlier place looks like that of a message that is gone.
So before a message counts as removed, the log itself is read, from its first entry on, until it has
shown the first message of the queue. If more of the front is removed, only the queues that lose
their first message need another search.
"""

import contextlib
import threading
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from dledger_broker.queues.builder import QueueChanges, QueueId, Run, changes_of
from dledger_formats.log.disk import EntryHeader
from dledger_formats.rocketmq.consume_queue import UNIT
from dledger_node.errors import StoreDamagedError
from dledger_node.state_machine.machine import CommittedEntry

UNREADABLE: Final = (IndexError, StoreDamagedError)


class FrontUnknownError(Exception):
    """The log has not shown yet what is asked for; `FirstMessagesReading` reads on."""


class Log(Protocol):
    """The log of a member, as far as it is used here."""

    @property
    def begin_index(self) -> int:
        """Index of the first entry."""

    @property
    def begin_pos(self) -> int:
        """Position of the first entry; 0 in a log without entries."""

    @property
    def applied_index(self) -> int:
        """Index up to which every entry is applied."""

    def read(
        self, first_index: int, last_index: int
    ) -> tuple[Sequence[CommittedEntry], EntryHeader]:
        """Return committed entries from the first one on, and the header of the last that was read;
        blocks. Raises IndexError if the log lacks the first entry, StoreDamagedError.
        """


class _First(NamedTuple):
    """The first message of a queue."""

    offset: int
    physical_offset: int


class FirstMessages:
    """What the log has shown of the first message of each queue.

    May be used in any thread. Nothing is read under the lock.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._begin_index = -1
        self._next_index = 0
        """Index of the first entry that was not read for all queues."""
        self._firsts: dict[QueueId, _First] = {}
        self._lost: dict[QueueId, int] = {}
        """Queues whose first message was removed, and the index from which to look for the next."""
        self._wanted: dict[QueueId, None] = {}

    @property
    def is_anything_wanted(self) -> bool:
        """Whether the log has to be read further."""
        return bool(self._wanted)

    def is_wanted(self, queue: QueueId) -> bool:
        """Return whether the log has to be read further for a queue."""
        with self._lock:
            return queue in self._wanted

    def first_offset(self, queue: QueueId) -> int | None:
        """Return the offset of the first message of a queue; None if no applied entry is one.

        The topic must have been created before the first entry of the log. Blocks while one batch
        is read, and raises FrontUnknownError if that does not show it.
        """
        applied_index = self._log.applied_index
        with self._lock:
            self._follow_front()
            is_asked = self._is_shown(queue, applied_index) or queue in self._wanted
            place = self._place(queue)
        if not is_asked:
            with contextlib.suppress(*UNREADABLE):
                self._read(place, applied_index)
        with self._lock:
            self._follow_front()
            if self._is_shown(queue, applied_index):
                first = self._firsts.get(queue)
                return None if first is None else first.offset
            self._wanted[queue] = None
        raise FrontUnknownError(f"the log is read for the first message of {queue}")

    def read_on(self) -> list[QueueId]:
        """Read one batch; return the queues for which the log need not be read any further.

        Blocks. Raises IndexError and StoreDamagedError if the log cannot be read now.
        """
        applied_index = self._log.applied_index
        with self._lock:
            self._follow_front()
            places = [self._place(each) for each in self._wanted if each not in self._firsts]
        place = min(places, default=applied_index + 1)
        if place <= applied_index:
            self._read(place, applied_index)
        with self._lock:
            shown = [each for each in self._wanted if self._is_shown(each, applied_index)]
            for queue in shown:
                del self._wanted[queue]
        return shown

    def _is_shown(self, queue: QueueId, applied_index: int) -> bool:
        return queue in self._firsts or self._place(queue) > applied_index

    def _place(self, queue: QueueId) -> int:
        """Return the index below which the log has no message of a queue without a first one."""
        return self._lost.get(queue, self._next_index)

    def _follow_front(self) -> None:
        """Forget the messages that were removed."""
        begin_index = self._log.begin_index
        if begin_index == self._begin_index:
            return
        self._begin_index = begin_index
        self._next_index = max(self._next_index, begin_index)
        if begin_index > self._log.applied_index:
            self._firsts, self._lost = {}, {}
            return
        begin_pos = self._log.begin_pos
        for queue, first in list(self._firsts.items()):
            if first.physical_offset < begin_pos:
                del self._firsts[queue]
                self._lost[queue] = begin_index
        self._lost = {queue: max(place, begin_index) for queue, place in self._lost.items()}

    def _read(self, first_index: int, applied_index: int) -> None:
        """Read one batch; one that begins before `_next_index` also ends before it."""
        with self._lock:
            next_index = self._next_index
        last_index = next_index - 1 if first_index < next_index else applied_index
        entries, last = self._log.read(first_index, last_index)
        changes = changes_of(entries)
        with self._lock:
            self._follow_front()
            if first_index >= self._begin_index:  # else messages of the batch were removed
                self._take(first_index, last.index + 1, changes)

    def _take(self, first_index: int, end_index: int, changes: QueueChanges) -> None:
        is_new = first_index == self._next_index
        if is_new:
            self._next_index = end_index
            self._forget(changes.deleted)
        for queue, place in list(self._lost.items()):
            if not first_index <= place < end_index:
                continue
            if queue in changes.runs:
                self._firsts[queue] = _first(changes.runs[queue][0])
            if queue in changes.runs or end_index >= self._next_index:
                del self._lost[queue]
            else:
                self._lost[queue] = end_index
        if is_new:
            for queue, runs in changes.runs.items():
                if queue not in self._firsts and queue not in self._lost:
                    self._firsts[queue] = _first(runs[0])

    def _forget(self, topics: dict[str, None]) -> None:
        """Forget the messages of topics that were deleted."""
        if topics:
            for table in (self._firsts, self._lost):
                for queue in [queue for queue in table if queue.topic in topics]:
                    del table[queue]


def _first(run: Run) -> _First:
    return _First(run.first_unit, UNIT.unpack_from(run.units)[0])
