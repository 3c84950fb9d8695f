"""The beginning of the log: list its segments, and remove them.

The order makes a crash between two steps harmless: save the new beginning durably, forget the
entries, delete the files, oldest first. The next start finishes an interrupted removal.
"""

import threading
from collections.abc import Sequence

from dledger_formats.http.retention import Removal
from dledger_formats.log.disk import INDEX_UNIT_SIZE, Buffer
from dledger_node.errors import RemoteProtocolError
from dledger_node.store.log import border, served_segments
from dledger_node.store.log.block import Block, check_block
from dledger_node.store.log.checkpoints import Checkpoints
from dledger_node.store.log.files import Beginning, LogFiles
from dledger_node.store.log.removals import UNRECORDED, Grounds
from dledger_node.store.log.retention import SealedSegment
from dledger_node.store.log.writer import LogWriter
from dledger_node.store.segments.segment import Segment, sync_folder
from dledger_node.store.small_files.checkpoint import Checkpoint


class LogFront:
    """Removes whole segments from the front; the caller decides which are no longer needed."""

    def __init__(self, files: LogFiles, writer: LogWriter, checkpoints: Checkpoints) -> None:
        self._files = files
        self._writer = writer
        self._checkpoints = checkpoints
        self._forgotten: list[Segment] = []
        """Files that `forget_before` returned and that may not be deleted yet."""
        self._deleting = threading.Lock()
        self.unmended_index: int | None = None
        """A damaged entry that no member can supply; a removal up to it does not wait for it."""

    def sealed_segments(self) -> list[SealedSegment]:
        """Return all data segments except the last, oldest first."""
        return served_segments.sealed_segments(
            self._files, self._writer.begin_index, self._writer.end_index
        )

    @property
    def removals(self) -> tuple[Removal, ...]:
        """The removals before the log's first entry: which entries are missing, and why."""
        return self._checkpoints.removals.before(self._writer.begin_index)

    def save_begin(
        self, first_index: int, grounds: Grounds = UNRECORDED, *, mend_first: bool = True
    ) -> Beginning:
        """Save durably which entry the log begins with, and why; blocks.

        Returns that beginning, for `forget_before`; if the log already begins there or later, where
        it begins now. See `border.beginning_at` for `mend_first` and the errors.
        """
        with self._checkpoints.lock:
            if self._writer.begin_index >= first_index:
                return self._writer.begin
            begin = border.beginning_at(
                self._files,
                first_index,
                self._writer.begin,
                self._writer.end_index,
                mend_first=mend_first and first_index - 1 != self.unmended_index,
            )
            self._checkpoints.begin_at(begin, grounds)
            return begin

    @property
    def tail_bytes(self) -> int:
        """Bytes written to the last data file."""
        return self._writer.end_pos % self._files.data.file_size

    @property
    def written_bytes(self) -> int:
        """Size of all data segments, counting only the written part of the last one."""
        if self._writer.is_empty:
            return 0
        data = self._files.data
        sealed = len(data.files_between(data.start, self._writer.end_pos)) - 1
        return sealed * data.file_size + self.tail_bytes

    def finish_removal(
        self, checkpoint: Checkpoint | None, removed: Sequence[Segment] = ()
    ) -> None:
        """Finish a removal that a crash interrupted after `save_begin`, and read the removals.

        `removed` are the files that `recovery.forget_removed` has found. Others are found only now,
        if the index had to be rebuilt. Nothing else is removed if the checkpoint has no durable
        entry from its beginning on: `LogStore.replace` saved it, this is still the old log, and
        its entries from there on may never have been committed.
        """
        if removed:
            self.delete(removed)
        if checkpoint is not None and checkpoint.begin_index is not None:
            last_index = min(checkpoint.end_index, self._writer.end_index)
            if self._writer.begin_index < checkpoint.begin_index <= last_index:
                begin = Beginning(checkpoint.begin_index, checkpoint.begin_chain_crc)
                self.delete(self.forget_before(begin))
        self._checkpoints.removals.restore(checkpoint, self._writer.begin_index)

    def forget_before(self, begin: Beginning, *, mend_first: bool = True) -> tuple[Segment, ...]:
        """Forget all entries before one that begins a segment; `save_begin` has returned it.

        Returns the files, for `delete`. Raises StoreDamagedError, before anything is forgotten, if
        the index no longer names the place of that entry; with `mend_first` also if the entry is
        not there.
        """
        first_index = begin.first_index
        if mend_first or not self._files.begins_segment(first_index):
            self._files.header(first_index)  # raises if it is not where the index says
        pos = self._files.pos(first_index)
        self._writer.begin_at(begin)
        index_pos = first_index * INDEX_UNIT_SIZE
        taken = self._files.data.take_before(pos) + self._files.index.take_before(index_pos)
        self._forgotten = [file for file in self._forgotten if not file.removed]
        self._forgotten += taken
        return taken

    def delete(self, files: Sequence[Segment]) -> None:
        """Delete files that `forget_before` returned, durably; blocks; any thread may call."""
        with self._deleting:
            for file in files:
                if not file.removed:
                    file.remove()
            sync_folder(self._files.data.folder)
            sync_folder(self._files.index.folder)

    def check(self, data: Buffer, *, first_index: int, last_index: int, term: int) -> Block:
        """Validate the first entries of a leader's log, which have no previous entry here.

        Raises RemoteProtocolError, also if they do not begin a segment. The caller must not modify
        `data` afterwards.
        """
        size = self._files.data.file_size
        block = check_block(
            data,
            first_index=first_index,
            last_index=last_index,
            term=term,
            segment_size=size,
            link=None,
        )
        if block.runs[0].pos == 0 or block.runs[0].pos % size:
            raise RemoteProtocolError(
                f"entry {first_index} at position {block.runs[0].pos} does not begin a segment "
                "after the first"
            )
        return block

    def replace(self, block: Block) -> None:
        """Remove the whole log, durably, and write a block that `check` validated.

        The removal includes files that another thread has yet to delete: a segment would be missing
        between them and the new ones.
        """
        self.delete(self._forgotten)
        self._writer.restart(block)
