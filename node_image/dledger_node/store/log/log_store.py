"""One member's log: the only writer of its data and index files.

Three kinds of threads use a store; an append takes no lock that a flush holds:

    the loop's thread   writes: reserve, append_*, flush_target, flushed, close
    a worker thread     blocks on the disk: flush, save_checkpoint, preallocate, room.make;
                        truncate and replace, while the loop's thread writes nothing
    any thread          reads (`LogReader`)

An append writes to the kernel's page cache. Its entries are durable once a flush that began after
the append returns; `flushed` then moves `durable_index`. Only durable entries may be acknowledged.
"""

import contextlib
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from dledger_formats.log import disk
from dledger_formats.log.disk import ENTRY_HEADER_SIZE, INDEX_UNIT_SIZE, Buffer
from dledger_node.errors import StoreDamagedError, StoreError, StoreFullError
from dledger_node.raft.membership import Membership
from dledger_node.store.derived.log_producers import LogProducers
from dledger_node.store.derived.stored_memberships import StoredMemberships
from dledger_node.store.log import recovery
from dledger_node.store.log.block import Block, check_block
from dledger_node.store.log.checkpoints import Checkpoints
from dledger_node.store.log.entry_runs import Place, Stamp, positions_of
from dledger_node.store.log.files import LogFiles
from dledger_node.store.log.flush_target import FlushTarget
from dledger_node.store.log.front import LogFront
from dledger_node.store.log.loading import load_files
from dledger_node.store.log.log_reader import LogReader
from dledger_node.store.log.recovery import MARGIN_BYTES, RecoveryProgress, RecoveryReport
from dledger_node.store.log.segment_room import SegmentRoom
from dledger_node.store.log.served_segments import ServedSegments
from dledger_node.store.log.writer import LogWriter
from dledger_node.store.segments.open_files import OPEN_FILES_MAX
from dledger_node.store.segments.segment_list import make_folders
from dledger_node.store.small_files import ballast
from dledger_node.store.small_files import checkpoint as checkpoint_file
from dledger_node.store.small_files.checkpoint import Checkpoint
from dledger_node.store.small_files.lock import FolderLock


class LogStore(LogReader):
    """An open log.

    Invariant: last checkpoint's committed_index <= durable_index <= end_index.
    """

    def __init__(
        self,
        folder: Path,
        lock: FolderLock,
        files: LogFiles,
        writer: LogWriter,
        checkpoint: Checkpoint | None,
        report: RecoveryReport,
        verified_index: int,
    ) -> None:
        """Take over recovered files. Callers use `open`."""
        super().__init__(files, writer, verified_index)
        self.durable_index, self.recovery = writer.end_index, report
        self._folder, self._lock = folder, lock
        self.segments = ServedSegments(folder, files, writer)
        self.producers = LogProducers(folder, files, writer)
        self.memberships = StoredMemberships(folder, files, writer)
        self.zero_ahead = writer.zero_ahead
        overhead = ENTRY_HEADER_SIZE + disk.BLANK_SIZE_MIN
        self.body_bytes_max = min(disk.BODY_SIZE_MAX, files.data.file_size - overhead)
        """The longest body: Java's limit, or what one segment can hold."""
        self._flushed_pos, self._index_synced_pos = writer.end_pos, writer.index_pos
        self._flush_error: StoreError | None = None
        self._checkpoints = Checkpoints(folder, writer, self.memberships, checkpoint)
        self.front = LogFront(files, writer, self._checkpoints)
        self.room = SegmentRoom(writer)
        self._opening = secrets.token_hex(8)

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        segment_size_bytes: int,
        index_segment_size_bytes: int,
        verify_all: bool = False,
        margin_bytes: int = MARGIN_BYTES,
        open_files_max: int = OPEN_FILES_MAX,
        progress: RecoveryProgress | None = None,
    ) -> Self:
        """Lock, load and recover a store; create `folder` (store_base_dir/dledger-ID) if missing.

        `verify_all` reads every entry. Otherwise entries that were durable more than `margin_bytes`
        before the durable end are verified when they are read. Sets `progress`. Raises
        StoreInUseError, StoreFullError, or StoreDamagedError (which leaves the files unchanged).
        """
        began = time.monotonic()
        with contextlib.ExitStack() as undo:
            make_folders(folder)
            lock = FolderLock(folder)
            undo.callback(lock.close)
            checkpoint = checkpoint_file.load_checkpoint(folder)
            files = load_files(
                folder, checkpoint, segment_size_bytes, index_segment_size_bytes, open_files_max
            )
            undo.callback(files.data.close)
            undo.callback(files.index.close)
            ballast.create(folder)
            recovery.finish_replacing(files, checkpoint)
            removed = recovery.forget_removed(files, checkpoint)
            found = recovery.examine(
                files, checkpoint, progress, verify_all=verify_all, margin_bytes=margin_bytes
            )
            cut_bytes = recovery.repair(files, found)
            report = recovery.report(found, cut_bytes, time.monotonic() - began)
            writer = LogWriter(files, found)
            store = cls(folder, lock, files, writer, checkpoint, report, found.start.index)
            store.front.finish_removal(checkpoint, removed)
            store.memberships.restore(checkpoint)
            store.producers.restore()
            with contextlib.suppress(StoreFullError):
                store.save_checkpoint(store.committed_index)
            undo.pop_all()
        return store

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints; the log is not truncated, replaced or closed while `lock` is held."""
        return self._checkpoints

    @property
    def committed_index(self) -> int:
        """The committed index of the last checkpoint; -1 without a checkpoint."""
        return self._checkpoints.committed_index

    @property
    def life(self) -> str:
        """A name for this log that changes when it is opened, cut or replaced."""
        return f"{self._opening}-{self.generation}"

    # -- writing -----------------------------------------------------------------------------------

    def reserve(self, body_sizes: Sequence[int]) -> list[Place]:
        """Make room for a batch and return the places where its entries go.

        Raises StoreFullError if there is no room, ValueError if a body is too long.
        """
        if (largest := max(body_sizes)) > self.body_bytes_max:
            raise ValueError(f"the body has {largest} bytes; at most {self.body_bytes_max} fit")
        return self._writer.reserve(body_sizes)

    def append_bodies(
        self,
        bodies: Sequence[Buffer],
        term: int,
        channels: Sequence[int] | None = None,
        magic: int = disk.NORMAL,
        stamp: Stamp | None = None,
    ) -> tuple[int, int]:
        """Write a batch, with one channel per body or all 0; return its first and last index.

        Raises the errors of `reserve`; nothing is written then.
        """
        first_index = self._writer.end_index + 1
        places = self.reserve(sizes := [len(body) for body in bodies])
        if stamp is not None:
            stamp(term, positions_of(places, sizes))
        self._writer.append(bodies, places, magic, term, channels)
        if channels is not None:
            self.producers.note_appends(first_index, magic, channels)
            self.memberships.note_appends(first_index, magic, channels, bodies)
        return first_index, self._writer.end_index

    def append_noop(self, term: int) -> int:
        """Write the no-op entry that begins a leader's term and return its index."""
        return self.append_bodies([b""], term, magic=disk.NOOP)[0]

    def check_block(
        self,
        data: Buffer,
        *,
        previous_index: int,
        previous_term: int,
        last_index: int,
        term: int,
    ) -> Block:
        """Validate the pushed entries previous_index + 1 .. last_index before the core sees them.

        Checks that they follow the previous entry if the log holds it; if it does not, the core
        refuses the push. Raises RemoteProtocolError. The caller must not modify `data` afterwards.
        """
        try:
            link = self._writer.link(previous_index, previous_term)
        except StoreDamagedError as error:
            self.note_damage(error, previous_index)
            raise
        return check_block(
            data,
            first_index=previous_index + 1,
            last_index=last_index,
            term=term,
            segment_size=self._files.data.file_size,
            link=link,
        )

    def reserve_block(self, block: Block) -> None:
        """Make room for a block. Raises StoreFullError."""
        self._writer.reserve_block(block)

    def append_block(self, block: Block, *, first_index: int, last_index: int) -> None:
        """Append a block's entries from first_index on.

        Raises StoreDamagedError if they do not follow the log, StoreFullError if there is no room;
        nothing is written then.
        """
        assert (first_index, last_index) == (self.end_index + 1, block.last_index)
        self._writer.append_block(block)
        self.producers.note_block(block, first_index)
        self.memberships.note_block(block, first_index)

    def truncate(self, first_index: int) -> None:
        """Remove entry first_index and all later ones, durably; blocks for a few fsyncs.

        The removal is durable because an old entry must never follow a new one after a crash. The
        checkpoint is lowered first, so that recovery does not take a crash halfway for damage.
        Raises StoreError if first_index is at or below the committed index.
        """
        if first_index > self.end_index:
            return
        # A log without its front keeps its first entry, which says where the log begins.
        if first_index <= max(self.committed_index, self.begin_index or -1):
            raise StoreError(
                f"{self._folder}: entry {first_index} cannot be removed: entries up to "
                f"{self.committed_index} are committed, and the log begins with entry "
                f"{self.begin_index}"
            )
        with self._checkpoints.lock:
            self.generation += 1
            self._writer.forget_from(first_index)
            self.durable_index = min(self.durable_index, first_index - 1)
            self._flushed_pos = min(self._flushed_pos, self._writer.end_pos)
            self._index_synced_pos = min(self._index_synced_pos, self._writer.index_pos)
            self._checkpoints.lower(self.durable_index)
            self._writer.cut_files()
        self.producers.cut(first_index)
        self.memberships.cut(first_index)

    def replace(self, block: Block, membership: Membership | None = None) -> None:
        """Remove the log and write a block that `LogFront.check` validated; blocks for fsyncs.

        `membership` is the membership before the block. The checkpoint first says that nothing is
        durable, so a crash leaves part of the old log or part of the new one.
        """
        with self._checkpoints.lock:
            self.generation += 1
            self.durable_index, self._flushed_pos, self._index_synced_pos = -1, 0, 0
            self._checkpoints.restart_at(block.beginning, membership)
            self.front.replace(block)
        self.memberships.note_block(block, block.first_index)
        self.producers.restore()

    # -- durability --------------------------------------------------------------------------------

    @property
    def has_unflushed(self) -> bool:
        """Whether the log holds an entry that no flush has made durable."""
        return self.durable_index < self.end_index and not self.is_empty

    def flush_target(self) -> FlushTarget:
        """Return a target for everything written so far; to -1 for a log without an entry."""
        return FlushTarget(
            end_index=-1 if self.is_empty else self.end_index,
            end_term=self.end_term,
            end_pos=self._writer.end_pos,
            generation=self.generation,
            files=self._files.data.files_between(self._flushed_pos, self._writer.end_pos),
        )

    def flush(self, target: FlushTarget) -> None:
        """Make a target durable; blocks. The caller runs at most one flush at a time.

        A StoreError is final: every later call raises it again, and the member must stop.
        """
        if self._flush_error is not None:
            raise self._flush_error
        try:
            self._files.data.sync(target.files)
        except StoreError as error:
            self._flush_error = error
            raise

    def flushed(self, target: FlushTarget) -> None:
        """Move `durable_index` after a flush, unless the log was truncated in the meantime."""
        if target.generation == self.generation:
            self.durable_index = target.end_index
            self._flushed_pos = target.end_pos

    def save_checkpoint(self, committed_index: int) -> None:
        """Save the durable and the committed index for the next start; blocks.

        Syncs the index files, which `flush` does not: recovery can rebuild them from the
        checkpoint on. Raises StoreError, or StoreFullError on a full volume; the previous
        checkpoint then stays in place.
        """
        with self._checkpoints.lock:
            end_index = self.durable_index
            committed_index = min(max(committed_index, self.committed_index), end_index)
            checkpoint = self._checkpoints.next(end_index, committed_index)
            if checkpoint == self._checkpoints.last:
                return
            index, index_pos = self._files.index, (end_index + 1) * INDEX_UNIT_SIZE
            index.sync(index.files_between(self._index_synced_pos, index_pos))
            self._index_synced_pos = index_pos
            self._checkpoints.save(checkpoint)

    @property
    def room_is_short(self) -> bool:
        """Whether `preallocate` has segments to create."""
        data, index, writer = self._files.data, self._files.index, self._writer
        return data.room_is_short(writer.end_pos) or index.room_is_short(writer.index_pos)

    def preallocate(self) -> None:
        """Create the next segments before the current ones are full; blocks.

        Segments that are not created here are created by `reserve`. Raises StoreFullError.
        """
        with self.room.lock:
            ballast.restore(self._folder)
            self._files.data.preallocate(self._writer.end_pos)
            self._files.index.preallocate(self._writer.index_pos)

    def close(self) -> None:
        """Flush, save the checkpoint if there is room for it, and release the files."""
        try:
            target = self.flush_target()
            self.flush(target)
            self.flushed(target)
            with contextlib.suppress(StoreFullError):
                self.save_checkpoint(self.committed_index)
            with contextlib.suppress(StoreError):  # the next start rebuilds the table from the log
                self.producers.save_at_close()
        finally:
            with self._checkpoints.lock:
                self.generation += 1
            self._files.data.close()
            self._files.index.close()
            self._lock.close()
