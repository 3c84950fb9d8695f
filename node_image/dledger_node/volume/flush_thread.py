"""The thread that flushes: one target at a time, with as little overhead as possible.

A lone append waits only for this thread. An executor's future, with its locks and callbacks, cost
as much CPU time as the flush itself (docs/benchmarks.md). The thread wakes the loop through an
eventfd: Python releases the GIL while it writes there, so the loop need not wait until this thread
sleeps again.
"""

import asyncio
import os
import threading
from collections.abc import Callable

from dledger_node.store.log.flush_target import FlushTarget


class FlushThread:
    """Flushes targets and reports to the loop; all methods are for the loop's thread."""

    def __init__(
        self,
        flush: Callable[[FlushTarget], None],
        done: Callable[[FlushTarget, BaseException | None], None],
    ) -> None:
        """`done` is called on the loop with each target and the error that `flush` raised."""
        self._flush = flush
        self._done = done
        self._target: FlushTarget | None = None
        self._error: BaseException | None = None
        self._work = threading.Lock()  # unlocked while there is a target to flush
        self._work.acquire()
        self._flushed = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._flushed, self._report)
        # A daemon: a thread that hangs on its disk must not keep the process from exiting.
        self._thread = threading.Thread(target=self._run, name="flush", daemon=True)
        self._thread.start()

    def begin(self, target: FlushTarget) -> None:
        """Flush a target; the previous flush must be done."""
        self._target = target
        self._work.release()

    def close(self) -> None:
        """End the thread; no flush may be in flight."""
        self._target = None
        self._work.release()
        self._thread.join()
        self._loop.remove_reader(self._flushed)
        os.close(self._flushed)

    def _run(self) -> None:
        while True:
            self._work.acquire()
            if self._target is None:
                return
            try:
                self._flush(self._target)
            except BaseException as error:
                self._error = error
            os.eventfd_write(self._flushed, 1)

    def _report(self) -> None:
        os.eventfd_read(self._flushed)
        target, error = self._target, self._error
        self._target = self._error = None
        assert target is not None
        self._done(target, error)
