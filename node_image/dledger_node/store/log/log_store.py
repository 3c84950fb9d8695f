"""One member's log: data and index files together, the only writer of both.

Three kinds of threads meet here, without a lock on the way of an append:

    the loop's thread   writes: reserve, append_*, truncate, flush_target, flushed, close
    a worker thread     blocks on the disk: flush, save_checkpoint, preallocate
    any thread          reads; it sees entries up to `end_index`, which moves last

An append is a write that the kernel keeps in memory. It is durable once a flush that began later
has returned: then `flushed` moves `durable_index`, which is all that may be acknowledged.
"""

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from dledger_formats.log import disk
from dledger_formats.log.disk import (
    ENTRY_HEADER_SIZE,
    INDEX_UNIT_SIZE,
    Buffer,
    EntryHeader,
    IndexUnit,
)
from dledger_node.errors import StoreDamagedError, StoreError, StoreFullError
from dledger_node.raft.membership import Membership
from dledger_node.store.derived.log_memberships import LogMemberships
from dledger_node.store.derived.log_producers import LogProducers
from dledger_node.store.log import recovery
from dledger_node.store.log.block import Block, check_block
from dledger_node.store.log.checkpoints import Checkpoints
from dledger_node.store.log.entry_runs import Place
from dledger_node.store.log.files import LogFiles
from dledger_node.store.log.flush_target import FlushTarget
from dledger_node.store.log.front import LogFront
from dledger_node.store.log.recovery import RecoveryReport
from dledger_node.store.log.served_segments import ServedSegments
from dledger_node.store.log.writer import LogWriter
from dledger_node.store.segments.segment_list import SegmentList, make_folders
from dledger_node.store.small_files import ballast
from dledger_node.store.small_files import checkpoint as checkpoint_file
from dledger_node.store.small_files.checkpoint import Checkpoint
from dledger_node.store.small_files.lock import FolderLock


class LogStore:
    """A log that ends at `end_index`; -1 when it is empty.

    Invariant: committed_index <= durable_index <= end_index. The first is what the checkpoint says.
    """

    def __init__(
        self,
        folder: Path,
        lock: FolderLock,
        files: LogFiles,
        log: LogWriter,
        checkpoint: Checkpoint | None,
        report: RecoveryReport,
        verified_index: int,
    ) -> None:
        """Take over files that recovery left in order; use `open`."""
        self.durable_index = log.end_index
        self.recovery = report
        self.damage: StoreDamagedError | None = None
        """What a read has found; the member should stop serving, and have everything verified."""
        self._folder = folder
        self._lock = lock
        self.front = LogFront(files, log, self._save_begin)
        self.segments = ServedSegments(folder, files, log)
        self.producers = LogProducers(folder, files, log)
        self.memberships = LogMemberships(folder, files, log)
        self.zero_ahead = log.zero_ahead
        overhead = ENTRY_HEADER_SIZE + disk.BLANK_SIZE_MIN
        self.body_bytes_max = min(disk.BODY_SIZE_MAX, files.data.file_size - overhead)
        """The longest body: Java's limit, or what a segment can hold."""
        self._files = files
        self._log = log
        self._verified_index = verified_index
        self._flushed_pos, self._index_synced_pos = log.end_pos, log.index_pos
        self._generation = 0
        self._flush_error: StoreError | None = None
        self._checkpoints = Checkpoints(folder, log, self.memberships, checkpoint)
        self._preallocation_lock = threading.Lock()

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        segment_size_bytes: int,
        index_segment_size_bytes: int,
        verify_all: bool = False,
    ) -> Self:
        """Lock, load and recover a store; `folder` (store_base_dir/dledger-ID) is made if missing.

        `verify_all` reads every entry; otherwise what was durable long ago is verified when it is
        served. StoreInUseError; StoreDamagedError, with nothing changed; StoreFullError.
        """
        began = time.monotonic()
        with contextlib.ExitStack() as undo:
            make_folders(folder)
            lock = FolderLock(folder)
            undo.callback(lock.close)
            data = SegmentList.load(folder / disk.DATA_FOLDER, segment_size_bytes)
            undo.callback(data.close)
            index = SegmentList.load(folder / disk.INDEX_FOLDER, index_segment_size_bytes)
            undo.callback(index.close)
            files = LogFiles(data, index)
            ballast.make(folder)
            checkpoint = checkpoint_file.load_checkpoint(folder)
            recovery.finish_replacing(files, checkpoint)
            found = recovery.examine(files, checkpoint, verify_all=verify_all)
            cut_bytes = recovery.repair(files, found)
            report = recovery.report(found, cut_bytes, time.monotonic() - began)
            log = LogWriter(files, found)
            store = cls(folder, lock, files, log, checkpoint, report, found.start.index)
            if checkpoint is not None:
                store.front.finish_removal(checkpoint.begin_index)
            store.memberships.restore(checkpoint)
            store.producers.restore()
            store._save_checkpoint_if_room()
            undo.pop_all()
        return store

    # -- what the log holds ------------------------------------------------------------------------

    @property
    def begin_index(self) -> int:
        """The first entry; 0 for an empty log."""
        return self._log.begin_index

    @property
    def end_index(self) -> int:
        """The last entry; -1 for an empty log."""
        return self._log.end_index

    @property
    def end_term(self) -> int:
        """Term of the last entry; -1 when there is none."""
        return self._log.end_term

    @property
    def committed_index(self) -> int:
        """What the checkpoint says."""
        return self._checkpoints.committed_index

    def term_runs(self) -> list[tuple[int, int]]:
        """First index and term of every run of entries of one term."""
        return list(self._log.term_runs)

    def position(self, index: int) -> IndexUnit:
        """Where an entry lies. IndexError outside of the log."""
        self._check_range(index, index)
        return self._files.unit(index)

    def positions(self, first_index: int, last_index: int) -> list[int]:
        """Where entries begin in the data files. IndexError outside of the log."""
        self._check_range(first_index, last_index)
        return self._log.positions(first_index, last_index)

    def entry(self, index: int) -> tuple[EntryHeader, bytes]:
        """Read one entry with all its checksums. IndexError; StoreDamagedError."""
        self._check_range(index, index)
        try:
            return self._files.checked_entry(index, self.begin_index)
        except StoreDamagedError as error:
            self.damage = error
            raise

    def tail(self, first_index: int, last_index: int) -> Buffer | None:
        """What `read_range` would read, if that was just appended; for the thread that writes."""
        return self._log.tail(first_index, last_index)

    def read_range(
        self, first_index: int, last_index: int, bytes_max: int
    ) -> tuple[list[bytes], int]:
        """Stored bytes of whole entries, one run per segment, and the last index they hold.

        At least one entry, then as many as `bytes_max` allows. What this process neither wrote nor
        verified, or `doubt`s, is verified here. IndexError outside of the log; StoreDamagedError.
        """
        self._check_range(first_index, last_index)
        try:
            last_index = self._files.last_within(first_index, last_index, bytes_max)
            if first_index < self._verified_index:
                return self._files.checked_runs(first_index, last_index), last_index
            return self._files.runs(first_index, last_index), last_index
        except StoreDamagedError as error:
            self.damage = error
            raise

    def doubt(self) -> None:
        """Verify what is stored now whenever it is read again."""
        self._verified_index = self._log.end_index + 1

    # -- writing -----------------------------------------------------------------------------------

    def reserve(self, body_sizes: Sequence[int]) -> list[Place]:
        """Make room for a batch; returns where it goes now. StoreFullError; ValueError when a body
        is too long.
        """
        if (largest := max(body_sizes)) > self.body_bytes_max:
            raise ValueError(f"a body of {largest} bytes; at most {self.body_bytes_max} are kept")
        return self._log.reserve(body_sizes)

    def append_bodies(
        self,
        bodies: Sequence[Buffer],
        term: int,
        channels: Sequence[int] | None = None,
        magic: int = disk.NORMAL,
    ) -> tuple[int, int]:
        """Write a batch; returns its first and last index. As `reserve`, with nothing written.
        `channels` has one for each body; None is 0 for all.
        """
        first_index = self._log.end_index + 1
        places = self.reserve([len(body) for body in bodies])
        self._log.append(bodies, places, magic, term, channels)
        if channels is not None:
            self.producers.note_appends(first_index, magic, channels)
            self.memberships.note_appends(first_index, magic, channels, bodies)
        return first_index, self._log.end_index

    def append_noop(self, term: int) -> int:
        """Write the empty entry with which a leader begins its term; returns its index."""
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
        """Judge the entries behind previous_index, up to last_index, before the core hears of them.

        They are compared with this log where it holds the previous entry; where it does not, the
        core refuses the push. RemoteProtocolError. `data` must not change any more.
        """
        try:
            link = self._log.link(previous_index, previous_term)
        except StoreDamagedError as error:
            self.damage = error
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
        """Make room for a block. StoreFullError."""
        self._log.reserve_block(block)

    def append_block(self, block: Block, *, first_index: int, last_index: int) -> None:
        """Write a block's entries from first_index on, behind the end of the log.

        StoreDamagedError when they do not fit to it; StoreFullError; nothing is written then.
        """
        assert (first_index, last_index) == (self.end_index + 1, block.last_index)
        self._log.append_block(block)
        self.producers.note_block(block, first_index)
        self.memberships.note_block(block, first_index)

    def truncate(self, first_index: int) -> None:
        """Remove first_index and all behind it, durably; blocks for a few fsyncs.

        Durably, because a new entry there must never meet an old one behind it again. The
        checkpoint is lowered first, so that a crash on the way is no damage. StoreError at or below
        the committed index.
        """
        if first_index > self.end_index:
            return
        # The first entry of a log that lost its front stays: it says where the log begins.
        if first_index <= max(self.committed_index, self.begin_index or -1):
            raise StoreError(
                f"{self._folder}: entry {first_index} cannot be removed: entries up to "
                f"{self.committed_index} are committed, and the log begins at {self.begin_index}"
            )
        with self._checkpoints.lock:
            self._generation += 1
            self._log.forget_from(first_index)
            self.durable_index = min(self.durable_index, first_index - 1)
            self._flushed_pos = min(self._flushed_pos, self._log.end_pos)
            self._index_synced_pos = min(self._index_synced_pos, self._log.index_pos)
            self._checkpoints.lower(self.durable_index)
            self._log.cut_files()
        self.producers.cut(first_index)
        self.memberships.cut(first_index)

    def replace(self, block: Block, membership: Membership | None = None) -> None:
        """Remove the log and write a block, which `LogFront.check` has judged; blocks for fsyncs.
        `membership` holds before it.

        The checkpoint says first that nothing is durable, so a crash leaves a part of either log.
        """
        with self._checkpoints.lock:
            self._generation += 1
            self.durable_index, self._flushed_pos, self._index_synced_pos = -1, 0, 0
            self._checkpoints.begin_anew(block.first_index, membership)
            self.front.replace(block)
        self.memberships.note_block(block, block.first_index)
        self.producers.restore()

    # -- durability --------------------------------------------------------------------------------

    def flush_target(self) -> FlushTarget:
        """Capture what is written now."""
        return FlushTarget(
            end_index=self.end_index,
            end_term=self.end_term,
            end_pos=self._log.end_pos,
            generation=self._generation,
            files=self._files.data.files_between(self._flushed_pos, self._log.end_pos),
        )

    def flush(self, target: FlushTarget) -> None:
        """Make a target durable; blocks. At most one flush at a time.

        A StoreError is final, here and in every later call: the member must stop.
        """
        if self._flush_error is not None:
            raise self._flush_error
        try:
            self._files.data.sync(target.files)
        except StoreError as error:
            self._flush_error = error
            raise

    def flushed(self, target: FlushTarget) -> None:
        """Move `durable_index` after a flush, unless the log was truncated since its target."""
        if target.generation == self._generation:
            self.durable_index = target.end_index
            self._flushed_pos = target.end_pos

    def save_checkpoint(self, committed_index: int) -> None:
        """Make durable what is durable and committed, for the next start; blocks.

        Index files are synced here and not in `flush`: they can be made anew from the checkpoint's
        segment on. After a StoreError, and a StoreFullError on a full volume, the last one stands.
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
        """Whether `preallocate` is due."""
        data, index = self._files.data, self._files.index
        return data.room_is_short(self._log.end_pos) or index.room_is_short(self._log.index_pos)

    def preallocate(self) -> None:
        """Have the next segments ready before these are full; blocks. StoreFullError.

        Without it they are made when they are needed, on the loop's thread.
        """
        with self._preallocation_lock:
            ballast.make_again(self._folder)
            self._files.data.preallocate(self._log.end_pos)
            self._files.index.preallocate(self._log.index_pos)

    def close(self) -> None:
        """Flush, save the checkpoint if there is room for it, and let go of the files."""
        try:
            target = self.flush_target()
            self.flush(target)
            self.flushed(target)
            self._save_checkpoint_if_room()
            with contextlib.suppress(StoreError):  # without the file, the log tells as much
                self.producers.close()
        finally:
            self._files.data.close()
            self._files.index.close()
            self._lock.close()

    # -- inside ------------------------------------------------------------------------------------

    def _check_range(self, first_index: int, last_index: int) -> None:
        if not self.begin_index <= first_index <= last_index <= self.end_index:
            raise IndexError(
                f"entries {first_index} to {last_index} are asked for, and the log holds "
                f"{self.begin_index} to {self.end_index}"
            )

    def _save_checkpoint_if_room(self) -> None:
        with contextlib.suppress(StoreFullError):
            self.save_checkpoint(self.committed_index)

    def _save_begin(self, first_index: int) -> None:
        self._checkpoints.begin_at(first_index, self.durable_index)
