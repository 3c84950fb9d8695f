"""The beginning of the log: which segments lie there, and how they are removed.

In this order, so that a crash between two steps costs nothing: the new beginning is made durable;
the log forgets the entries; the files go, the oldest first. What a crash leaves of them is still
the log's at the next start.
"""

from collections.abc import Callable, Sequence

from dledger_formats.log.disk import INDEX_UNIT_SIZE, Buffer
from dledger_node.errors import RemoteProtocolError
from dledger_node.store.log import served_segments
from dledger_node.store.log.block import Block, check_block
from dledger_node.store.log.files import LogFiles
from dledger_node.store.log.retention import SealedSegment
from dledger_node.store.log.writer import LogWriter
from dledger_node.store.segments.segment import Segment, sync_folder


class LogFront:
    """Removes whole segments from the front; the caller answers for nobody needing them."""

    def __init__(self, files: LogFiles, log: LogWriter, save_begin: Callable[[int], None]) -> None:
        """`save_begin` makes durable that the log begins with an entry; it blocks."""
        self._files = files
        self._log = log
        self.save_begin = save_begin

    def sealed_segments(self) -> list[SealedSegment]:
        """The data files but for the last, oldest first."""
        return served_segments.sealed_segments(
            self._files, self._log.begin_index, self._log.end_index
        )

    @property
    def tail_bytes(self) -> int:
        """How much of the last data file is written."""
        return self._log.end_pos % self._files.data.file_size

    def finish_removal(self, begin_index: int | None) -> None:
        """Remove what a crash kept from being removed, by what `save_begin` had saved."""
        if begin_index is not None and self._log.begin_index < begin_index <= self._log.end_index:
            self.delete(self.forget_before(begin_index))

    def forget_before(self, first_index: int) -> tuple[Segment, ...]:
        """Forget all before an entry with which a segment begins, after `save_begin`.

        Returns the files, for `delete`.
        """
        pos = self._files.pos(first_index)
        self._log.remove_before(first_index)
        index_pos = first_index * INDEX_UNIT_SIZE
        return self._files.data.take_before(pos) + self._files.index.take_before(index_pos)

    def delete(self, files: Sequence[Segment]) -> None:
        """Delete files that `forget_before` has taken out; blocks."""
        for file in files:
            file.remove()
        sync_folder(self._files.data.folder)
        sync_folder(self._files.index.folder)

    def check(self, data: Buffer, *, first_index: int, last_index: int, term: int) -> Block:
        """Judge a leader's first entries, which have nothing before them to fit to.

        RemoteProtocolError, also when they do not begin a segment. `data` must not change any more.
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
                f"entry {first_index} at position {block.runs[0].pos} begins no later segment"
            )
        return block

    def replace(self, block: Block) -> None:
        """Remove everything, durably, and write a block that `check` has judged."""
        self._log.restart(block)
