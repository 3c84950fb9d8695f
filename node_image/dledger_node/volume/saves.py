"""Saves term and vote in a thread, so that a disk that hangs does not hang the loop.

The thread is not the one that flushes: a vote need not wait for a long flush. No message that
depends on a term or a vote leaves before it is saved (Raft paper, 5.2): `CoreLoop` does no further
work of the core until then.
"""

import asyncio
from collections.abc import Callable

from dledger_node.raft.ready import HardState
from dledger_node.volume.disk_thread import DiskThread


class HardStateSaves:
    """Saves one hard state at a time; all methods are for the loop's thread."""

    def __init__(
        self,
        save: Callable[[HardState], None],
        *,
        on_saved: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`save` makes a hard state durable and blocks. `on_failed` gets the error that it raised;
        the disk then holds the old or the new state.
        """
        self._loop = asyncio.get_running_loop()
        self._save = save
        self._on_saved = on_saved
        self._on_failed = on_failed
        self._thread: DiskThread[HardState] | None = None
        self._began_s = 0.0
        self._finished: asyncio.Event | None = None
        """Not set while a save is under way; None before the first."""

    @property
    def in_flight_s(self) -> float:
        """How long the save under way has taken so far; 0 if there is none."""
        if self._finished is None or self._finished.is_set():
            return 0.0
        return self._loop.time() - self._began_s

    def begin(self, hard_state: HardState) -> None:
        """Begin to save; the previous save must be done."""
        if self._thread is None:
            self._thread = DiskThread("hard state", self._save, self._done)
            self._finished = asyncio.Event()
        assert self._finished is not None
        self._finished.clear()
        self._began_s = self._loop.time()
        self._thread.begin(hard_state)

    async def close(self) -> None:
        """Wait until no save is under way, and end the thread."""
        while self._finished is not None and not self._finished.is_set():
            await self._finished.wait()
        if self._thread is not None:
            self._thread.close()
            self._thread = self._finished = None

    def _done(self, _: HardState, error: BaseException | None) -> None:
        assert self._finished is not None
        self._finished.set()
        if error is not None:
            self._on_failed(error)
        else:
            self._on_saved()
