"""The end of the log: append entries, and truncate.

Appends run on the thread that writes, and write only to the kernel's page cache. Removals of
entries wait for the disk, so another thread runs them while that one writes nothing. `LogStore`
makes entries durable.
"""

from collections.abc import Sequence
from typing import Final

from dledger_formats.log import disk
from dledger_formats.log.disk import INDEX_UNIT, INDEX_UNIT_SIZE, Buffer
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.store.log.block import Block
from dledger_node.store.log.entry_runs import EntryRun, Link, Place, pack_runs, place_bodies
from dledger_node.store.log.files import Beginning, LogFiles
from dledger_node.store.log.recovery import Examined
from dledger_node.store.segments.zero_ahead import ZeroAhead

TAIL_BYTES_MAX: Final = 1 << 20
"""The longest run that is kept in memory after it is written."""


class LogWriter:
    """Appends to recovered files and truncates them.

    An append moves `end_index` last, so that readers on other threads see whole entries.
    """

    def __init__(self, files: LogFiles, found: Examined) -> None:
        self.begin = found.begin
        self.end_index = found.end.index - 1
        self.end_pos = found.end.pos
        self.chain_crc = found.end.chain_crc or 0
        self.term_runs = list(found.term_runs)
        self.zero_ahead = ZeroAhead(files.data, self.end_pos)
        self._files = files
        self._segment_size = files.data.file_size
        # The last run and its first index, unless it is long: it is pushed next, and reading it
        # again would cost more than writing it.
        self._tail: tuple[int, EntryRun] | None = None

    @property
    def begin_index(self) -> int:
        """Index of the first entry."""
        return self.begin.first_index

    @property
    def is_empty(self) -> bool:
        """Whether the log has no entry; it then ends before its first index.

        That index may be above 0 if the leader's log was to replace this one and found no room.
        """
        return self.end_index < self.begin_index

    @property
    def end_term(self) -> int:
        """Term of the last entry; -1 for an empty log."""
        return self.term_runs[-1][1] if self.term_runs else -1

    @property
    def index_pos(self) -> int:
        """Position of the next unit in the index files."""
        return (self.end_index + 1) * INDEX_UNIT_SIZE

    def reserve(self, body_sizes: Sequence[int]) -> list[Place]:
        """Make room for entries with bodies of these sizes and return their places.

        Raises StoreFullError if there is no room, ValueError if a body is too long.
        """
        places = place_bodies(body_sizes, self.end_pos, self._segment_size)
        self._reserve(places[-1].end_pos, self.end_index + len(body_sizes))
        return places

    def has_ample_room(self, entry_count: int, body_bytes: int) -> bool:
        """Return whether the last segments have room for these entries, whatever their sizes."""
        size = body_bytes + entry_count * disk.ENTRY_HEADER_SIZE + disk.BLANK_SIZE_MIN
        index_end = self.index_pos + entry_count * INDEX_UNIT_SIZE
        return self.end_pos + size <= self._files.data.end and index_end <= self._files.index.end

    def has_room(self, body_sizes: Sequence[int]) -> bool:
        """Return whether the existing segments have room for these entries.

        Raises ValueError if a body is too long.
        """
        places = place_bodies(body_sizes, self.end_pos, self._segment_size)
        return self._has_room(places[-1].end_pos, self.end_index + len(body_sizes))

    def has_room_for_block(self, block: Block) -> bool:
        """Return whether the existing segments have the room that `reserve_block` makes."""
        return block.link is None or self._has_room(block.runs[-1].end_pos, block.last_index)

    def reserve_block(self, block: Block) -> None:
        """Make room for a block if the log holds the entry before it. Raises StoreFullError."""
        if block.link is not None:
            self._reserve(block.runs[-1].end_pos, block.last_index)

    def append(
        self,
        bodies: Sequence[Buffer],
        places: Sequence[Place],
        magic: int,
        term: int,
        channels: Sequence[int] | None = None,
    ) -> None:
        """Write a batch to the places that `reserve` returned for it."""
        runs = pack_runs(
            bodies,
            places,
            channels,
            magic=magic,
            first_index=self.end_index + 1,
            term=term,
            chain_crc=self.chain_crc,
        )
        for run in runs:
            self._write(run, term)

    def append_block(self, block: Block) -> None:
        """Write the entries of a block that the log does not hold.

        Raises StoreDamagedError if they do not follow the log: the leader's log and this log then
        differ where they must be equal.
        """
        runs = list(block.runs_from(self.end_index + 1))
        link = Link(self.end_pos, self.chain_crc)
        is_judged = block.first_index == self.end_index + 1 and block.link == link
        if not (is_judged or runs[0].follows(self.end_index, link, self._segment_size)):
            raise StoreDamagedError(
                f"{self._files.data.folder}: the leader's entry {self.end_index + 1} does not "
                f"follow this log, which ends at position {self.end_pos}: the logs differ before "
                "that entry. Audit the group",
                Damage.DIVERGED,
                self.end_index + 1,
            )
        self._reserve(runs[-1].end_pos, block.last_index)
        for run in runs:
            self._write(run, block.term)

    def tail(self, first_index: int, last_index: int) -> Buffer | None:
        """Return the stored bytes of these entries if they are the last run written, else None."""
        tail = self._tail  # read once: a truncation in another thread forgets it
        if tail is None:
            return None
        first_of_tail, run = tail
        found = first_index == first_of_tail and last_index == first_of_tail + run.entry_count - 1
        return run.data if found else None

    def positions(self, first_index: int, last_index: int) -> list[int]:
        """Return where entries of the log begin in the data files."""
        tail = self._tail  # read once, as in `tail`
        if tail is not None and first_index >= tail[0]:
            start, end = first_index - tail[0], last_index - tail[0] + 1
            units = tail[1].units[start * INDEX_UNIT_SIZE : end * INDEX_UNIT_SIZE]
        else:
            units = self._files.units(first_index, last_index)
        return [pos for _, pos, *_ in INDEX_UNIT.iter_unpack(units)]

    def link(self, index: int, term: int) -> Link | None:
        """Return the log's end after an entry; None if the log lacks it or its term differs."""
        if index == -1:
            return Link(0, 0)
        if not self.begin_index <= index <= self.end_index:
            return None
        if index == self.end_index:
            return Link(self.end_pos, self.chain_crc) if term == self.end_term else None
        header = self._files.header(index)
        if header.term != term:
            return None
        return Link(self._files.end_pos(index), header.chain_crc)

    def forget_from(self, first_index: int) -> None:
        """Move the end of the log before an entry; leaves the files unchanged."""
        self._tail = None
        last_index = first_index - 1
        if last_index >= self.begin_index:
            self.end_pos = self._files.end_pos(last_index)
            self.chain_crc = self._files.header(last_index).chain_crc
        else:
            self.end_pos = self.chain_crc = 0
        self.end_index = last_index
        while self.term_runs and self.term_runs[-1][0] >= first_index:
            self.term_runs.pop()

    def begin_at(self, begin: Beginning) -> None:
        """Move the beginning of the log to an entry that it holds."""
        self.begin = begin
        first_index = begin.first_index
        kept = [run for run in self.term_runs if run[0] > first_index]
        term = self.term_runs[-len(kept) - 1][1]
        self.term_runs = [(first_index, term), *kept]

    def restart(self, block: Block) -> None:
        """Remove all segments and begin again with a block."""
        self._tail = None
        begin, end_index = block.beginning, block.first_index - 1
        # Set first, and both in one step of the interpreter: readers on other threads find no entry
        # from now on, and never an old one after the new beginning.
        self.begin, self.end_index = begin, end_index
        self.end_pos, self.chain_crc = block.runs[0].pos, 0
        self.term_runs = []
        self._files.data.clear()
        self._files.index.clear()
        self._reserve(block.runs[-1].end_pos, block.last_index)
        for run in block.runs:
            self._write(run, block.term)

    def cut_files(self) -> None:
        """Zero the files after the end of the log, durably."""
        self._files.data.truncate(self.end_pos)
        self._files.index.truncate(self.index_pos)

    def _has_room(self, end_pos: int, last_index: int) -> bool:
        index_end = (last_index + 1) * INDEX_UNIT_SIZE
        data, index = self._files.data, self._files.index
        return data.has_room(self.end_pos, end_pos) and index.has_room(self.index_pos, index_end)

    def _reserve(self, end_pos: int, last_index: int) -> None:
        self._files.data.reserve(self.end_pos, end_pos)
        self._files.index.reserve(self.index_pos, (last_index + 1) * INDEX_UNIT_SIZE)

    def _write(self, run: EntryRun, term: int) -> None:
        """Copy a run to the end of the log, after a blank if it begins a new segment."""
        data, end_pos, end_term = self._files.data, run.end_pos, self.end_term
        assert term >= end_term
        self.zero_ahead.enter(end_pos)
        if run.pos != self.end_pos:
            data.write(self.end_pos, disk.BLANK_HEADER.pack(disk.BLANK, run.pos - self.end_pos))
        data.write(run.pos, run.data)
        self._files.index.write(self.index_pos, run.units)
        if term != end_term:
            self.term_runs.append((self.end_index + 1, term))
        self._tail = (self.end_index + 1, run) if len(run.data) <= TAIL_BYTES_MAX else None
        self.chain_crc = run.chain_crc
        self.end_pos = end_pos
        self.end_index += run.entry_count
