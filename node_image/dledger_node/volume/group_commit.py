"""Group commit: at most one flush is in flight, and it covers everything written before it began.

An entry is acknowledged only after a flush, so under load many entries share one; an idle log is
flushed at once. Other threads create the segments that a growing log will need and write zeros
ahead of it, so that no append waits for either.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from dledger_node.errors import StoreFullError
from dledger_node.histogram import Histogram
from dledger_node.store.log.flush_target import FlushTarget
from dledger_node.store.log.log_store import LogStore
from dledger_node.volume.disk_thread import DiskThread

logger = logging.getLogger(__name__)

FLUSH_BOUNDS_S: Final = (
    0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0,
)  # fmt: skip
FULL_RETRY_S: Final = 1.0
ZEROS_INTERVAL_S: Final = 1 / 16
"""Time between two MiB of zeros. A log that grows faster spreads each flush over enough entries
that writing its blocks twice costs more than it saves.
"""
ZEROS_PAUSE_S: Final = 1.0
"""Time without zeros after the log has outrun them."""


class GroupCommit:
    """Flushes a store in a thread and reports to the loop how far the log is durable."""

    what: Final = "a flush"

    def __init__(
        self,
        store: LogStore,
        executor: Executor,
        *,
        interval_s: float = 0.0,
        zeros_interval_s: float = ZEROS_INTERVAL_S,
        zeros_pause_s: float = ZEROS_PAUSE_S,
        on_durable: Callable[[FlushTarget], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`interval_s` is how long entries wait for others to share their flush; 0 to not wait.

        With interval 0, zeros are written ahead of the log: that makes flushes shorter and writes
        the log's blocks twice. The executor runs everything but flushes; it needs two threads, so
        that preallocation and zeros do not delay each other.
        """
        # Kept because each get_running_loop is a system call (getpid).
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._executor = executor
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._interval_s = interval_s
        self._zeros_interval_s = zeros_interval_s
        self._zeros_pause_s = zeros_pause_s
        self._zero_ahead = not interval_s
        self._timer: asyncio.TimerHandle | None = None
        self._thread: DiskThread[FlushTarget] | None = None
        self._flushing = False
        self._paused = False
        self._unreported: FlushTarget | None = None
        self._flushed: asyncio.Future[None] | None = None
        self._preallocation: asyncio.Future[None] | None = None
        self._zeroing: asyncio.Future[None] | None = None
        self._began_s = 0.0
        self._look_ahead_from_s = self._preallocate_from_s = self._zero_from_s = 0.0
        self.flush_s = Histogram(FLUSH_BOUNDS_S)
        """Time that each flush took."""

    def start(self) -> None:
        """Schedule a flush of everything written, now or at the end of the interval."""
        if self._paused:
            return
        if not self._interval_s:
            self._begin()
        elif self._timer is None and self._store.has_unflushed:
            self._timer = self._loop.call_later(self._interval_s, self._begin)
        now_s = self._loop.time()
        if now_s >= self._look_ahead_from_s:
            self._look_ahead_from_s = now_s + self._zeros_interval_s
            self._look_ahead(now_s)

    def _begin(self) -> None:
        self._timer = None
        if self._paused or self._flushing or not self._store.has_unflushed:
            return
        if self._thread is None:
            self._thread = DiskThread("flush", self._store.flush, self._done)
        self._began_s = self._loop.time()
        self._flushing = True
        self._thread.begin(self._store.flush_target())

    @property
    def in_flight_s(self) -> float:
        """How long the flush in flight has taken so far; 0 if there is none."""
        if not self._flushing or self._unreported is not None:
            return 0.0
        return self._loop.time() - self._began_s

    def pause(self) -> None:
        """Keep the report of a flush until `resume`, and begin none.

        Until then, the log lacks writes that the core has done. Among them may be a truncation,
        after which that flush must not count. A thread may be carrying it out, and a reader of the
        log's end may see half of it.
        """
        self._paused = True

    def resume(self) -> None:
        """Report the flush that has finished in the meantime, and begin another if one is due."""
        self._paused = False
        if self._unreported is not None:
            target, self._unreported = self._unreported, None
            self._report(target)
        else:
            self.start()

    async def drain(self) -> None:
        """Flush everything written, and wait until no thread works on the store."""
        self._interval_s = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.resume()
        self.start()
        while self._flushing or self._preallocation is not None or self._zeroing is not None:
            if self._flushing:
                self._flushed = self._loop.create_future()
            work = self._flushed, self._preallocation, self._zeroing
            await asyncio.wait([each for each in work if each is not None])
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    def _done(self, target: FlushTarget, error: BaseException | None) -> None:
        if error is None:
            self.flush_s.observe(self._loop.time() - self._began_s)
            if self._paused:
                self._unreported = target
                return
        else:
            self._on_failed(error)
        self._report(target, failed=error is not None)

    def _report(self, target: FlushTarget, *, failed: bool = False) -> None:
        self._flushing = False
        if self._flushed is not None:
            self._flushed.set_result(None)
            self._flushed = None
        if failed:
            return
        self._store.flushed(target)
        # If the log was truncated during the flush, the flush does not count.
        if self._store.durable_index == target.end_index:
            self._on_durable(target)
        self.start()

    def _look_ahead(self, now_s: float) -> None:
        """Start preallocation and zeros if they are due."""
        if self._preallocation is None and self._store.room_is_short:
            self._preallocate(now_s)
        if self._zero_ahead and self._zeroing is None and self._store.zero_ahead.is_due:
            self._zero(now_s)

    def _preallocate(self, now_s: float) -> None:
        if now_s < self._preallocate_from_s:
            return
        self._preallocation = self._loop.run_in_executor(self._executor, self._store.preallocate)
        self._preallocation.add_done_callback(self._preallocated)

    def _preallocated(self, preallocation: "asyncio.Future[None]") -> None:
        self._preallocation = None
        error = preallocation.exception()
        if isinstance(error, StoreFullError):  # `reserve` fails once the room is needed
            self._preallocate_from_s = self._loop.time() + FULL_RETRY_S
        elif error is not None:
            self._on_failed(error)

    def _zero(self, now_s: float) -> None:
        if now_s < self._zero_from_s:
            return
        outrun = self._store.zero_ahead.is_outrun
        self._zero_from_s = now_s + (self._zeros_pause_s if outrun else self._zeros_interval_s)
        self._zeroing = self._loop.run_in_executor(self._executor, self._store.zero_ahead.run)
        self._zeroing.add_done_callback(self._zeroed)

    def _zeroed(self, zeroing: "asyncio.Future[None]") -> None:
        self._zeroing = None
        error = zeroing.exception()
        if isinstance(error, OSError):  # harmless: the blocks are allocated all the same
            self._zero_ahead = False
            logger.warning("zeros are no longer written ahead of the log: %s", error)
        elif error is not None:
            self._on_failed(error)
