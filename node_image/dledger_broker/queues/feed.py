"""Committed and applied entries on their way into the consume queues.

A thread of its own reads the entries and writes the units, one bounded batch at a time. It never
passes the applied index, so whoever sees a unit finds its topic in the state. Faults of the disk
are tried again; queues that contradict the log are built again from its first entry.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from dledger_broker.errors import QueueFilesError
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.checkpoint import Mark
from dledger_broker.queues.queue_store import SAVE_ENTRIES, QueueStore
from dledger_node.embedding import Member
from dledger_node.errors import StoreDamagedError

logger = logging.getLogger(__name__)

SAVE_S: Final = 2.0
RETRY_S: Final = 1.0
FOLDER: Final = "queues"


class QueueFeed:
    """Feeds the queues of one member. Call its methods in the event loop's thread."""

    def __init__(
        self,
        member: Member,
        folder: Path,
        *,
        built: Callable[[Iterable[QueueId]], None],
        rebuilding: Callable[[], None],
    ) -> None:
        """`built` receives the queues that have new messages; `rebuilding` is called when all
        queues are deleted, to be built again.
        """
        self._member = member
        self._folder = folder / FOLDER
        self._built = built
        self._rebuilding = rebuilding
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="queues")
        self._batch: asyncio.Future[list[QueueId]] | None = None
        self._store: QueueStore | None = None
        self._wants_restart = False
        self._rebuilt_index = -1
        self.rebuilds = 0
        """How often the queues were deleted, to be built again."""
        self._saved_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def open(self) -> QueueStore:
        """Open the queues, and begin to feed them. Raises QueueFilesError."""
        store = await self._loop.run_in_executor(self._thread, self._open)
        self._member.call_when_applied(lambda _: self._begin())
        self._begin()
        return store

    @property
    def built_index(self) -> int:
        """Index up to which all messages are in the queues; -1 before the first."""
        return -1 if self._store is None else self._store.built_index

    @property
    def saved_index(self) -> int:
        """Index up to which the queues survive a crash; -1 before the first."""
        return -1 if self._store is None else self._store.saved_index

    @property
    def is_rebuilding(self) -> bool:
        """Whether the queues are built again, and lack messages that they had before."""
        return self._wants_restart or self.built_index < self._rebuilt_index

    @property
    def has_all(self) -> bool:
        """Whether the queues have every message that the state has counted.

        It holds for what was read of the state in the same turn of the loop. While entries are
        being applied the state is ahead, and its newest messages are in no queue.
        """
        member = self._member
        is_settled = not (self._wants_restart or member.is_applying)
        return is_settled and self.built_index >= member.applied_index

    def rebuild(self, reason: str, seen_rebuilds: int) -> None:
        """Build all queues again: a reader has found that one contradicts the log. It began to read
        after so many `rebuilds`.

        Nothing happens if they are being built again, or were since: the reader may have met files
        that were deleted for that.
        """
        if not self.is_rebuilding and seen_rebuilds == self.rebuilds:
            logger.warning("the consume queues are built again: %s", reason)
            self._wants_restart = True
            self._rebuilt_index = self._member.applied_index
            self.rebuilds += 1
            self._rebuilding()
            self._begin()

    async def close(self) -> None:
        """Stop, and save what is built."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._batch is not None:
            await asyncio.wait([self._batch])
        try:
            await self._loop.run_in_executor(self._thread, self._close)
        finally:
            self._thread.shutdown(wait=False)

    # -- in the event loop's thread ----------------------------------------------------------------

    def _begin(self) -> None:
        """Begin a batch, unless one is under way or nothing is to be built."""
        if self._batch is not None or self._closed or self._store is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        last_index = self._buildable_index()
        if self._wants_restart or last_index > self._store.built_index:
            self._batch = self._loop.run_in_executor(self._thread, self._build, last_index)
            self._batch.add_done_callback(self._done)
        elif self._store.unsaved_entries:
            self._timer = self._loop.call_later(SAVE_S, self._begin_saving)

    def _buildable_index(self) -> int:
        """Return the index up to which entries are applied, and in the log.

        A member that joins has a snapshot of the state before the entries that it includes. Until
        they are there, those after the readable index may be a deposed leader's.
        """
        member = self._member
        if member.end_index >= member.applied_index:
            return member.applied_index
        return min(member.readable_index, member.end_index)

    def _begin_saving(self) -> None:
        """Save while nothing new arrives."""
        self._timer = None
        if self._batch is None and not self._closed:
            self._batch = self._loop.run_in_executor(self._thread, self._save)
            self._batch.add_done_callback(self._done)

    def _done(self, batch: "asyncio.Future[list[QueueId]]") -> None:
        self._batch = None
        if batch.cancelled():
            return
        error = batch.exception()
        if isinstance(error, QueueFilesError | StoreDamagedError | IndexError):
            # The disk may recover, and the member mends its log by itself.
            logger.warning("consume queues cannot be built now: %s", error)
            if not self._closed:
                self._timer = self._loop.call_later(RETRY_S, self._begin)
        elif error is not None:
            self._member.fail(error)
        else:
            self._built(batch.result())
            self._begin()

    # -- in the queues' thread ---------------------------------------------------------------------

    def _open(self) -> QueueStore:
        # Kept here, so that `close` finds it also if nobody waits for it any longer.
        self._store = QueueStore.open(
            self._folder, begin_index=self._member.begin_index, mark_of=self._mark_of
        )
        return self._store

    def _mark_of(self, index: int) -> Mark | None:
        try:
            header = self._member.header(index)
        except StoreDamagedError:
            return None
        return None if header is None else Mark(index, header.term, header.pos, header.chain_crc)

    def _build(self, last_index: int) -> list[QueueId]:
        """Add one batch, of entries up to this one; return the queues that have new units."""
        store, member = self._store, self._member
        assert store is not None
        if self._wants_restart:
            store.restart(member.begin_index)
            self._wants_restart = False
        store.skip_to(member.begin_index)
        if store.built_index >= last_index:
            return []
        entries, last = member.read(store.built_index + 1, last_index)
        changes = store.add(entries, Mark(last.index, last.term, last.pos, last.chain_crc))
        if store.unsaved_entries >= SAVE_ENTRIES or self._loop.time() - self._saved_s >= SAVE_S:
            self._save()
        return list(changes.runs)

    def _save(self) -> list[QueueId]:
        assert self._store is not None
        self._saved_s = self._loop.time()
        self._store.save()
        return []

    def _close(self) -> None:
        if self._store is not None:
            with contextlib.suppress(QueueFilesError):  # the next start builds what is missing
                self._store.save()
            self._store.close()
