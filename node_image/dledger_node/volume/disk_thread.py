"""A thread for work that blocks on the disk, one item at a time, at the least cost.

A lone append waits only for the thread that flushes. An executor's future, with its locks and
callbacks, cost as much CPU time as the flush itself (docs/benchmarks/appends.md). The thread wakes
the loop through an eventfd: Python releases the GIL while it writes there, so the loop need not
wait until this thread sleeps again.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

WorkT = TypeVar("WorkT")


class DiskThread(Generic[WorkT]):
    """Does items of work and reports to the loop; all methods are for the loop's thread."""

    def __init__(
        self,
        name: str,
        do: Callable[[WorkT], None],
        done: Callable[[WorkT, BaseException | None], None],
    ) -> None:
        """`done` is called on the loop with each item and the error that `do` raised."""
        self._do = do
        self._done = done
        self._work: WorkT | None = None
        self._error: BaseException | None = None
        self._begun = threading.Lock()  # unlocked while there is work to do
        self._begun.acquire()
        self._finished = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._finished, self._report)
        # A daemon: a thread that hangs on its disk must not keep the process from exiting.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def begin(self, work: WorkT) -> None:
        """Begin an item of work; the previous one must be done."""
        self._work = work
        self._begun.release()

    def close(self) -> None:
        """End the thread; no work may be under way."""
        self._work = None
        self._begun.release()
        self._thread.join()
        self._loop.remove_reader(self._finished)
        os.close(self._finished)

    def _run(self) -> None:
        while True:
            self._begun.acquire()
            if self._work is None:
                return
            try:
                self._do(self._work)
            except BaseException as error:
                self._error = error
            os.eventfd_write(self._finished, 1)

    def _report(self) -> None:
        os.eventfd_read(self._finished)
        work, error = self._work, self._error
        self._work = self._error = None
        assert work is not None
        self._done(work, error)
