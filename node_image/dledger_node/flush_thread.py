"""The thread that flushes: one target at a time, handed over and back with as little as possible.

An append that is alone waits for nothing but this. An executor's future, with its locks and
callbacks, cost as much processor time again as the flush itself (docs/benchmarks.md).
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable

from dledger_node.store.flush_target import FlushTarget


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
        self._loop = asyncio.get_running_loop()
        self._target: FlushTarget | None = None
        self._given = threading.Lock()  # free while there is something to do
        self._given.acquire()
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

    def _run(self) -> None:
        while True:
            self._given.acquire()
            target = self._target
            if target is None:
                return
            error: BaseException | None = None
            try:
                self._flush(target)
            except BaseException as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # nobody waits for a loop that is closed
                self._loop.call_soon_threadsafe(self._done, target, error)
