"""Room in the log for clients' entries and leaders' pushes.

A segment is allocated in a thread, since the disk may take any time for it. Until it is allocated,
the log takes no entries; they wait, in order, in the parts that received them.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.errors import StoreFullError
from dledger_node.store.log.block import Block
from dledger_node.store.log.log_store import LogStore
from dledger_node.volume.health import VolumeHealth


class LogRoom:
    """Makes room before entries are proposed or accepted. Implements `services.refusals.Room`."""

    what: Final = "the allocation of a segment"

    def __init__(
        self,
        store: LogStore,
        health: VolumeHealth,
        executor: Executor,
        *,
        is_saving: Callable[[], bool],
        go_on: Callable[[], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`is_saving` returns whether the core's writes wait for the disk (`CoreLoop.saving`).
        `go_on` is called once room was made, or could not be made. `fail` receives an error of the
        store, which stops this member.
        """
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._health = health
        self._executor = executor
        self._is_saving = is_saving
        self._go_on = go_on
        self._fail = fail
        self._making: asyncio.Future[None] | None = None
        self._began_s = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether the log takes no entries now: a thread makes room or saves the term, or the log
        is cut.
        """
        return self._making is not None or self._is_saving()

    @property
    def in_flight_s(self) -> float:
        """How long the allocation under way has taken so far; 0 if there is none."""
        return 0.0 if self._making is None else self._loop.time() - self._began_s

    def begin(self, body_sizes: Sequence[int]) -> bool:
        """Begin to make room for bodies of these sizes in bytes.

        Return False if no room is to be made: there is enough, or the volume is full.
        """
        if self._health.full or self._health.nearly_full or self._store.room.fits(body_sizes):
            return False
        self._make(lambda: self._store.reserve(body_sizes))
        return True

    def reserve(self, body_sizes: Sequence[int]) -> DLedgerResponseCode | None:
        """Return None if there is room for bodies of these sizes in bytes, or a refusal's code.

        DISK_FULL: the volume has no room, or had none for an earlier entry. Followers may have less
        room, so they could be unable to store what still fits here. LEADER_PENDING_FULL: a thread
        makes room. The code is not DISK_ERROR, which clients must treat as an unknown outcome:
        these entries were certainly not stored.
        """
        if self._health.full or self._health.nearly_full:
            return DLedgerResponseCode.DISK_FULL
        if self.is_busy or self.begin(body_sizes):
            return DLedgerResponseCode.LEADER_PENDING_FULL
        return None

    def reserve_block(self, block: Block) -> bool:
        """Return whether there is room for a leader's entries; begin to make it if not."""
        if self._store.room.fits_block(block):
            return True
        self._make(lambda: self._store.reserve_block(block))
        return False

    async def close(self) -> None:
        """Wait until nothing is being allocated."""
        while self._making is not None:
            await asyncio.wait([self._making])

    def _make(self, reserve: Callable[[], object]) -> None:
        self._began_s = self._loop.time()
        making = self._loop.run_in_executor(self._executor, self._store.room.make, reserve)
        making.add_done_callback(lambda made: self._made(made, reserve))
        self._making = making

    def _made(self, made: "asyncio.Future[None]", reserve: Callable[[], object]) -> None:
        self._making = None
        error = made.exception()
        if isinstance(error, StoreFullError):
            self._health.found_full(error, reserve)
        elif error is not None:
            self._fail(error)
            return
        self._go_on()
