"""Group commit: at most one flush is in flight, and it covers everything written before it began.

An entry is acknowledged only behind a flush, so under load many entries share one; an idle log is
flushed at once.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from dledger_node.store.mmap_store import FlushTarget, MmapStore


class GroupCommit:
    """Flushes a store in a thread and says on the loop how far it is durable."""

    def __init__(
        self,
        store: MmapStore,
        executor: Executor,
        *,
        interval_s: float,
        on_durable: Callable[[FlushTarget], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`interval_s` is how long entries wait for others to share their flush; 0 for not."""
        self._store = store
        self._executor = executor
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._interval_s = interval_s
        self._timer: asyncio.TimerHandle | None = None
        self._flush: asyncio.Future[None] | None = None
        self.flushes = 0

    def start(self) -> None:
        """See to it that what is written is flushed, now or when the interval is over."""
        if self._flush is not None or self._store.durable_index >= self._store.end_index:
            return
        if not self._interval_s:
            self._begin()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._interval_s, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._flush is not None or self._store.durable_index >= self._store.end_index:
            return
        target = self._store.flush_target()
        loop = asyncio.get_running_loop()
        self._flush = loop.run_in_executor(self._executor, self._store.flush, target)
        self._flush.add_done_callback(lambda flush: self._done(target, flush))

    async def drain(self) -> None:
        """Flush what is written, and wait for it."""
        self._interval_s = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.start()
        while self._flush is not None:
            await asyncio.wait([self._flush])

    def _done(self, target: FlushTarget, flush: "asyncio.Future[None]") -> None:
        self._flush = None
        error = flush.exception()
        if error is not None:
            self._on_failed(error)
            return
        self.flushes += 1
        self._store.flushed(target)
        # A truncation may have overtaken the flush: what it covered is not what the log holds now.
        if self._store.durable_index == target.end_index:
            self._on_durable(target)
        self.start()
