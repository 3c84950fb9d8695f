"""When the units of removed messages are removed: `removed_units` says how.

Once a minute the thread that writes the queues looks at all of them, a few at a time, so that what
is to be built does not wait. It removes what lay before the beginning of the log a minute ago: a
reader that has just looked where the log begins still finds all units from there on.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final, NamedTuple, Protocol

from dledger_broker.errors import QueueFilesError
from dledger_broker.queues.queue_store import QueueStore
from dledger_node.errors import StoreDamagedError

logger = logging.getLogger(__name__)

SWEEP_S: Final = 60.0
"""Between the beginnings of two looks at all queues."""
SLICE_QUEUES: Final = 25
"""Queues that the thread looks at before it does what waits: 25 µs for most. The event loop may
have to wait for a slice, since the thread hardly lets it in between short calls of the system.
"""


class TrimmedMember(Protocol):
    """The member, as far as it is used here."""

    @property
    def begin_index(self) -> int:
        """Index of the first entry."""

    @property
    def begin_pos(self) -> int:
        """Position of the first entry; 0 in a log without entries. May block."""

    def fail(self, error: BaseException) -> None:
        """Stop the member."""


class _Seen(NamedTuple):
    """What decides whether another sweep would find anything."""

    begin_index: int
    trimmed_index: int
    built_index: int


class QueueTrimming:
    """Trims the queues of one member. Call its methods in the event loop's thread."""

    def __init__(
        self, member: TrimmedMember, store: QueueStore, thread: ThreadPoolExecutor
    ) -> None:
        """`thread` is the one that writes to the store."""
        self.disk_bytes = 0
        """Bytes that the files took on disk when all queues were looked at last."""
        self._member = member
        self._store = store
        self._thread = thread
        self._loop = asyncio.get_running_loop()
        self._next_s = self._loop.time()
        self._seen: _Seen | None = None
        self._begin_index, self._begin_pos = -1, 0
        """Where the log began when the last sweep did."""
        self._queues: Iterator[int] = iter(())
        self._swept_bytes = 0
        self._slice: asyncio.Future[bool] | None = None
        self._closed = False

    def tick(self) -> None:
        """Begin to look at all queues, if it is time and anything has changed."""
        now_s = self._loop.time()
        if self._slice is not None or self._closed or now_s < self._next_s:
            return
        self._next_s = now_s + SWEEP_S
        seen = _Seen(self._member.begin_index, self._begin_index, self._store.built_index)
        if seen != self._seen:
            self._seen = seen
            self._begin_slice(self._begin)

    def close(self) -> None:
        """Stop after the slice that is under way."""
        self._closed = True

    def _begin_slice(self, work: Callable[[], bool]) -> None:
        self._slice = self._loop.run_in_executor(self._thread, work)
        self._slice.add_done_callback(self._done)

    def _done(self, done: "asyncio.Future[bool]") -> None:
        self._slice = None
        if done.cancelled() or self._closed:
            return
        error = done.exception()
        if isinstance(error, QueueFilesError | StoreDamagedError | IndexError):
            logger.warning("consume queues cannot be trimmed now: %s", error)
            self._seen = None
        elif error is not None:
            self._member.fail(error)
        elif done.result():
            self.disk_bytes = self._swept_bytes
        else:
            self._begin_slice(self._go_on)

    # -- in the thread -----------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Begin with the first queue; return whether all were looked at."""
        begin_index, begin_pos = self._member.begin_index, self._member.begin_pos
        # A member's log may be replaced by one that begins earlier.
        self._queues = self._store.trim(min(self._begin_pos, begin_pos))
        self._begin_index, self._begin_pos = begin_index, begin_pos
        self._swept_bytes = 0
        return self._go_on()

    def _go_on(self) -> bool:
        """Look at the next queues; return whether there are no others."""
        sizes = list(islice(self._queues, SLICE_QUEUES))
        self._swept_bytes += sum(sizes)
        return len(sizes) < SLICE_QUEUES
