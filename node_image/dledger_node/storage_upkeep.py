"""What a member does for its store once a second; in a thread what blocks."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from dledger_node.errors import StoreError, StoreFullError
from dledger_node.raft.core import Raft
from dledger_node.storage_watch import StorageWatch
from dledger_node.store.mmap_store import MmapStore

INTERVAL_S: Final = 1.0


class StorageUpkeep:
    """The checkpoint, and the segments that a growing log will need."""

    def __init__(
        self,
        store: MmapStore,
        core: Raft,
        watch: StorageWatch,
        *,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._core = core
        self._watch = watch
        self._fail = fail

    async def run(self) -> None:
        """Go on until cancelled; what breaks the store is told to `fail`."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self._once()
            except (StoreError, OSError) as error:
                self._fail(error)

    async def _once(self) -> None:
        # On a full volume the last checkpoint stands, and `reserve` tells when room is needed.
        with contextlib.suppress(StoreFullError):
            await asyncio.to_thread(self._store.save_checkpoint, self._core.committed_index)
        with contextlib.suppress(StoreFullError):
            await asyncio.to_thread(self._store.preallocate)
        self._watch.look_for_room()
