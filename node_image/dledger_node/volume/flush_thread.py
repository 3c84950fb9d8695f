"""The thread that flushes: one target at a time, handed over and back with as little as possible.

An append that is alone waits for nothing but this. An executor's future, with its locks and
callbacks, cost as much processor time again as the flush itself (docs/benchmarks.md). The loop is
woken by an eventfd: Python lets go of its global lock while it writes there, so that the loop
finds it free, and has not to wait until this thread sleeps again.
"""

import asyncio
import os
import threading
from collections.abc import Callable

from dledger_node.store.log.flush_target import FlushTarget


class FlushThread:
    """Flushes what `begin` is given, and tells the loop; all methods are for the loop's thread."""

    def __init__(
        self,
        flush: Callable[[FlushTarget], None],
        done: Callable[[FlushTarget, BaseException | None], None],
    ) -> None:
        """`done` is called on the loop with each target, and with what `flush` raised."""
        self._flush = flush
        self._done = done
        self._target: FlushTarget | None = None
        self._error: BaseException | None = None
        self._given = threading.Lock()  # free while there is something to do
        self._given.acquire()
        self._flushed = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._flushed, self._tell)
        # One that hangs on its disk must not keep a process alive that has decided to end.
        self._thread = threading.Thread(target=self._run, name="flush", daemon=True)
        self._thread.start()

    def begin(self, target: FlushTarget) -> None:
        """Flush this; not before the one before is done."""
        self._target = target
        self._given.release()

    def close(self) -> None:
        """End the thread, which has nothing to do any more."""
        self._target = None
        self._given.release()
        self._thread.join()
        self._loop.remove_reader(self._flushed)
        os.close(self._flushed)

    def _run(self) -> None:
        while True:
            self._given.acquire()
            if self._target is None:
                return
            try:
                self._flush(self._target)
            except BaseException as error:
                self._error = error
            os.eventfd_write(self._flushed, 1)

    def _tell(self) -> None:
        os.eventfd_read(self._flushed)
        target, error = self._target, self._error
        self._target = self._error = None
        assert target is not None
        self._done(target, error)
