"""Committed and applied entries on their way into the consume queues.

The event loop itself takes a few short entries that are in memory, and keeps their units there:
handing them to a thread and waiting for it costs more. A separate thread builds everything else,
one bounded batch at a time, and writes the units. Another one makes them durable, which may take
seconds if thousands of queues have new messages. None passes the applied index, so a reader that
sees a unit finds its topic in the state. After disk faults, the work is tried again; queues that
contradict the log are built again from its first entry.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from dledger_broker.errors import NotABrokerLogError, QueueFilesError
from dledger_broker.queues.builder import QueueId, Run
from dledger_broker.queues.checkpoint import Mark
from dledger_broker.queues.queue_store import SAVE_ENTRIES, QueueStore, Save
from dledger_broker.queues.trimming import QueueTrimming
from dledger_formats.log.disk import EntryHeader
from dledger_node.embedding import Member
from dledger_node.errors import StoreDamagedError
from dledger_node.state_machine.apply import LOOP_BYTES_MAX, LOOP_ENTRIES_MAX

logger = logging.getLogger(__name__)

SAVE_S: Final = 2.0
RETRY_S: Final = 1.0
WRITE_UNITS: Final = 4096
"""Units in memory that are written before it is time to save."""
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
        self._sync_thread = ThreadPoolExecutor(1, thread_name_prefix="queue-saves")
        self._building: asyncio.Future[tuple[list[QueueId], Save | None]] | None = None
        """What the thread builds; meanwhile only the thread adds units."""
        self._writing: asyncio.Future[tuple[list[tuple[QueueId, Run]], Save | None]] | None = None
        self._syncing: asyncio.Future[None] | None = None
        """The save that is being made durable."""
        self._needs_thread = False
        """Whether the next entries are the thread's work, so that the loop does not try again."""
        self._store: QueueStore | None = None
        self._trimming: QueueTrimming | None = None
        self._wants_restart = False
        self._rebuilt_index = -1
        self.rebuilds = 0
        """How often the queues were deleted, to be built again; counted after the deletion."""
        self.refusals = 0
        """How often a reader has found that a queue contradicts the log, or lacks a message."""
        self._saved_s = self._loop.time()
        self._retry: asyncio.TimerHandle | None = None
        self._save_timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def open(self) -> QueueStore:
        """Open the queues, and begin to feed them. Raises QueueFilesError."""
        store = await self._loop.run_in_executor(self._thread, self._open)
        self._trimming = QueueTrimming(self._member, store, self._thread)
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
    def disk_bytes(self) -> int:
        """Bytes that the files take on disk, as counted last."""
        return 0 if self._trimming is None else self._trimming.disk_bytes

    @property
    def is_rebuilding(self) -> bool:
        """Whether the queues are being built again, and lack messages that they had before."""
        return self._wants_restart or self.built_index < self._rebuilt_index

    @property
    def has_all(self) -> bool:
        """Whether the queues have every message that the state has counted.

        The answer holds for a state read in the same turn of the loop. While entries are being
        applied the state is ahead, and its newest messages are in no queue.
        """
        member = self._member
        is_settled = not (self._wants_restart or member.is_applying)
        return is_settled and self.built_index >= member.applied_index

    def rebuild(self, reason: str, seen_rebuilds: int) -> None:
        """Build all queues again: a reader has found that one contradicts the log.

        The reader began after `seen_rebuilds`. Nothing happens if the queues are being built again,
        or were since: the reader may have met files that were deleted for that.
        """
        self.refusals += 1
        if not self.is_rebuilding and seen_rebuilds == self.rebuilds:
            logger.warning("the consume queues are built again: %s", reason)
            self._wants_restart = True
            self._rebuilt_index = self._member.applied_index
            self._rebuilding()
            self._begin()

    def tick(self) -> None:
        """Remove the units of messages that the log no longer has, if it is time."""
        if self._trimming is not None:
            self._trimming.tick()

    async def close(self) -> None:
        """Stop, and save what is built."""
        self._closed = True
        if self._trimming is not None:
            self._trimming.close()
        for timer in (self._retry, self._save_timer):
            if timer is not None:
                timer.cancel()
        while work := self._building or self._writing or self._syncing:
            await asyncio.wait([work])  # each may begin the next one
        try:
            await self._loop.run_in_executor(self._thread, self._close)
        finally:
            self._thread.shutdown(wait=False)
            self._sync_thread.shutdown(wait=False)

    # -- in the event loop's thread ----------------------------------------------------------------

    def _begin(self) -> None:
        """Add the entries that are applied; write or save what was added, if it is time."""
        if self._building is not None or self._closed or self._store is None:
            return
        last_index = self._buildable_index()
        is_due = self._wants_restart or last_index > self._store.built_index
        if is_due and not self._keep(self._store, last_index):
            if self._writing is None and self._retry is None:  # else their end begins this again
                self._building = self._loop.run_in_executor(self._thread, self._build, last_index)
                self._building.add_done_callback(self._done_building)
        else:
            self._save_if_due()

    def _buildable_index(self) -> int:
        """Return the index up to which entries are applied, and in the log.

        A member that joins has a snapshot of the state before the entries that it includes. Until
        they are there, those after the readable index may be a deposed leader's.
        """
        member = self._member
        if member.end_index >= member.applied_index:
            return member.applied_index
        return min(member.readable_index, member.end_index)

    def _keep(self, store: QueueStore, last_index: int) -> bool:
        """Add the entries up to this one here; return False if that is the thread's work."""
        is_much = last_index - store.built_index > LOOP_ENTRIES_MAX
        if is_much or self._wants_restart or self._needs_thread:
            return False
        try:
            read = self._member.read_in_memory(store.built_index + 1, last_index, LOOP_BYTES_MAX)
            if read is None:
                return False
            changes = store.keep(read[0], _mark(read[1]))
        except (StoreDamagedError, NotABrokerLogError):
            changes = None  # the thread decides what to do about it
        if changes is None:
            self._needs_thread = True
            return False
        self._built(list(changes.runs))
        return True

    def _save_if_due(self) -> None:
        """Write or save in the threads, or make sure that this is done in time."""
        assert self._store is not None
        is_busy = self._building is not None or self._writing is not None or self._retry is not None
        if is_busy or self._closed or not self._store.unsaved_entries:
            return
        if self._store.unwritten_units >= WRITE_UNITS or self._is_save_due():
            self._writing = self._loop.run_in_executor(self._thread, self._write)
            self._writing.add_done_callback(self._done_writing)
        elif self._save_timer is None:
            self._save_timer = self._loop.call_later(SAVE_S, self._save_on_time)

    def _save_on_time(self) -> None:
        self._save_timer = None
        if self._store is not None:
            self._save_if_due()

    def _done_building(self, building: "asyncio.Future[tuple[list[QueueId], Save | None]]") -> None:
        self._building = None
        if not building.cancelled() and not self._has_failed(building.exception()):
            queues, save = building.result()
            self._sync(save)
            self._needs_thread = False
            self._built(queues)
            self._begin()

    def _done_writing(
        self, writing: "asyncio.Future[tuple[list[tuple[QueueId, Run]], Save | None]]"
    ) -> None:
        self._writing = None
        if not writing.cancelled() and not self._has_failed(writing.exception()):
            assert self._store is not None
            written, save = writing.result()
            self._sync(save)
            self._store.forget(written)
            self._begin()

    def _sync(self, save: Save | None) -> None:
        """Make a save durable, in a thread for which nothing else waits."""
        if save is not None:
            assert self._store is not None
            self._syncing = self._loop.run_in_executor(
                self._sync_thread, self._store.end_save, save
            )
            self._syncing.add_done_callback(self._done_syncing)

    def _done_syncing(self, syncing: "asyncio.Future[None]") -> None:
        self._syncing = None
        if not syncing.cancelled() and not self._has_failed(syncing.exception()):
            self._begin()

    def _try_again(self) -> None:
        self._retry = None
        self._begin()

    def _has_failed(self, error: BaseException | None) -> bool:
        """Return whether the thread's work has failed; if so, let it be tried again."""
        if isinstance(error, QueueFilesError | StoreDamagedError | IndexError):
            # The disk may recover, and the member mends its log by itself.
            logger.warning("consume queues cannot be built now: %s", error)
            if not self._closed:
                self._retry = self._loop.call_later(RETRY_S, self._try_again)
        elif error is not None:
            self._member.fail(error)
        return error is not None

    # -- in the queues' thread ---------------------------------------------------------------------

    def _open(self) -> QueueStore:
        # Kept here, so that `close` finds it also if nobody waits for it any longer.
        self._store = QueueStore.open(
            self._folder,
            begin_index=self._member.begin_index,
            mark_of=self._mark_of,
            reading=self._member.reading_disk,
        )
        return self._store

    def _mark_of(self, index: int) -> Mark | None:
        try:
            header = self._member.header(index)
        except StoreDamagedError:
            return None
        return None if header is None else _mark(header)

    def _build(self, last_index: int) -> tuple[list[QueueId], Save | None]:
        """Add one batch, of entries up to this one; return the queues that have new units, and
        what is to be made durable.
        """
        store, member = self._store, self._member
        assert store is not None
        if self._wants_restart:
            store.restart(member.begin_index)
            self.rebuilds += 1  # not earlier: until now readers met the files that are deleted
            self._wants_restart = False
        store.skip_to(member.begin_index)
        if store.built_index >= last_index:
            return [], None
        entries, last = member.read(store.built_index + 1, last_index)
        changes = store.add(entries, _mark(last))
        return list(changes.runs), self._write()[1] if self._is_save_due() else None

    def _is_save_due(self) -> bool:
        """Return whether it is time for a save, and the last one is durable."""
        assert self._store is not None
        is_late = self._loop.time() - self._saved_s >= SAVE_S
        is_due = is_late or self._store.unsaved_entries >= SAVE_ENTRIES
        return is_due and self._syncing is None

    def _write(self) -> tuple[list[tuple[QueueId, Run]], Save | None]:
        """Write the units in memory, and begin a save if that is due; return those that were
        written, and the save.
        """
        assert self._store is not None
        if not self._is_save_due():
            return self._store.write(), None
        self._saved_s = self._loop.time()
        return self._store.begin_save()

    def _close(self) -> None:
        if self._store is not None:
            with contextlib.suppress(QueueFilesError):  # the next start builds what is missing
                self._store.save()
            self._store.close()


def _mark(header: EntryHeader) -> Mark:
    return Mark(header.index, header.term, header.pos, header.chain_crc)
