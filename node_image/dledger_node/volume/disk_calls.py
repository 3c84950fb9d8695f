"""Calls that may wait for the disk for any time, each in a thread, so that the loop goes on.

The threads are not the one that flushes: a vote need not wait for a long flush. `CoreLoop` does no
further work of the core until its call is done, so no message is sent that depends on an unsaved
term or vote (Raft paper, 5.2), or on a log that is still being cut.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from dledger_node.volume.disk_thread import DiskThread

WorkT = TypeVar("WorkT")


class DiskCalls(Generic[WorkT]):
    """Makes one call at a time; all methods are for the loop's thread."""

    def __init__(
        self,
        name: str,
        call: Callable[[WorkT], None],
        *,
        what: str,
        on_done: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """Prepare to run `call`, which blocks, in a thread named `name`; `what` describes it.

        `on_failed` receives the error that it raised; the disk then holds the old state, the new
        one, or, for the log, a part of the change.
        """
        self._loop = asyncio.get_running_loop()
        self._name = name
        self.what = what
        self._call = call
        self._on_done = on_done
        self._on_failed = on_failed
        self._thread: DiskThread[WorkT] | None = None
        self._began_s = 0.0
        self._finished: asyncio.Event | None = None
        """Not set while a call is under way; None before the first."""

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return self._finished is not None and not self._finished.is_set()

    @property
    def in_flight_s(self) -> float:
        """How long the call under way has taken so far; 0 if there is none."""
        return self._loop.time() - self._began_s if self.is_busy else 0.0

    def begin(self, work: WorkT) -> None:
        """Begin a call; the previous one must be done."""
        if self._thread is None:
            self._thread = DiskThread(self._name, self._call, self._done)
            self._finished = asyncio.Event()
        assert self._finished is not None
        self._finished.clear()
        self._began_s = self._loop.time()
        self._thread.begin(work)

    async def close(self) -> None:
        """Wait until no call is under way, and end the thread."""
        while self._finished is not None and not self._finished.is_set():
            await self._finished.wait()
        if self._thread is not None:
            self._thread.close()
            self._thread = self._finished = None

    def _done(self, _: WorkT, error: BaseException | None) -> None:
        assert self._finished is not None
        self._finished.set()
        if error is not None:
            self._on_failed(error)
        else:
            self._on_done()
