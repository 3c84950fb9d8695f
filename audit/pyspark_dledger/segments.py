"""Scan one data segment from its first entry to its last: bytes in, checked entries out.

Every index that the segment should hold is yielded once, in order: in `Entries`, or in an `Absent`
run if it could not be found or read.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from dledger_formats.http.status import SegmentFile
from dledger_formats.log import disk
from pyspark_dledger.decode import Context, Entries, PreviousEntry, decode
from pyspark_dledger.files import (
    DiskError,
    Files,
    GoneError,
    IndexUnits,
    ReadError,
    UnauthorizedError,
    Window,
)
from pyspark_dledger.layout import UNIT, Bytes, Flag, Records
from pyspark_dledger.locate import Located, blank_size, ends_with_blank, find_header, locate
from pyspark_dledger.sparse import HeaderWindow

WINDOW_BYTES: Final = 32 << 20
BLOCK_ENTRIES_MAX: Final = 1 << 16

assert WINDOW_BYTES > disk.ENTRY_SIZE_MAX  # a fresh window holds a whole entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A data segment as a manifest describes it, and which part of it to read."""

    file: SegmentFile
    previous: SegmentFile | None
    """The data file that ends where this one starts."""
    index_files: tuple[SegmentFile, ...]
    first_wanted: int
    last_wanted: int
    """The last index to read, at most the committed index: later entries may change meanwhile."""
    last_expected: int | None
    """Index of its last entry; None if unknown, because the next file is missing."""
    is_sealed: bool = False
    """Whether the next file follows, so that this one ends with a blank."""
    term_max: int | None = None
    """The member's own term; None if it is not known."""

    @property
    def pos(self) -> int:
        """Offset of the segment's first byte in the data files."""
        return disk.start_offset(self.file.name)

    def part(self, first: int, last: int) -> "Segment":
        """Return the segment with other wanted indexes, which must be among the present ones."""
        return replace(self, first_wanted=first, last_wanted=last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Entries that should be present; `flag` says why they are absent."""

    first_index: int
    last_index: int
    flag: Flag
    reason: str = ""
    """Human-readable details; empty if the flag says everything."""
    at: int = -1
    """Offset in the data files where the first of them should start; -1 if unknown."""
    is_unauthorized: bool = False
    """Whether the member refused them because it did not get the audit token of its group."""
    is_gone: bool = False
    """Whether the member no longer has the file; its others may be readable."""


Run: TypeAlias = Entries | Absent


Scan: TypeAlias = Callable[[Segment, Files, int], Iterator[Run]]
"""Scans a segment with windows of so many bytes."""


def scan(
    segment: Segment, files: Files, window_bytes: int = WINDOW_BYTES, *, sums_bodies: bool = True
) -> Iterator[Run]:
    """Yield every wanted index once, in order, but none after a clean end of the segment.

    A run has at most BLOCK_ENTRIES_MAX entries. After a ReadError, the rest of the segment is
    absent. Without `sums_bodies`, no body is checked, and large ones are not even read.
    """
    scanner = _Scanner(segment, files, window_bytes, sums_bodies=sums_bodies)
    try:
        for run in scanner.runs():
            if (wanted := _from(segment.first_wanted, run)) is not None:
                yield from _in_blocks(wanted)
    except DiskError as error:
        yield from _in_blocks(scanner.give_up(Flag.DISK_ERROR, str(error)))
    except ReadError as error:
        absent = scanner.give_up(Flag.UNREADABLE, str(error))
        is_unauthorized, is_gone = (
            isinstance(error, kind) for kind in (UnauthorizedError, GoneError)
        )
        yield from _in_blocks(replace(absent, is_unauthorized=is_unauthorized, is_gone=is_gone))


def _from(first_index: int, run: Run) -> Run | None:
    """Return the part of a run from an index on; None if there is none.

    A scan that does not find the first wanted entry begins with those before it.
    """
    if isinstance(run, Entries):
        before = int(np.searchsorted(run.index, first_index))
        if before == len(run):
            return None
        return run.part(before, len(run)) if before else run
    if run.last_index < first_index:
        return None
    return run if run.first_index >= first_index else replace(run, first_index=first_index, at=-1)


def _in_blocks(run: Run) -> Iterator[Run]:
    """Divide absent runs into blocks; runs of entries already are blocks."""
    if isinstance(run, Entries):
        yield run
        return
    for first_index in range(run.first_index, run.last_index + 1, BLOCK_ENTRIES_MAX):
        last_index = min(run.last_index, first_index + BLOCK_ENTRIES_MAX - 1)
        yield replace(run, first_index=first_index, last_index=last_index)


class _Scanner:
    """The state of a segment's scan.

    Invariant: all entries before `_index` were yielded, and entry `_index` should start `_at` bytes
    into the file.
    """

    def __init__(
        self, segment: Segment, files: Files, window_bytes: int, *, sums_bodies: bool
    ) -> None:
        self._segment = segment
        self._files = files
        self._sums_bodies = sums_bodies
        self._data = (
            Window(files, segment.file, window_bytes)
            if sums_bodies
            else HeaderWindow(files, segment.file, window_bytes, self._units_from)
        )
        self._units = IndexUnits(files, segment.index_files)
        self._index = segment.file.first_index
        self._last_index = segment.last_wanted
        if segment.last_expected is not None:
            self._last_index = min(segment.last_wanted, segment.last_expected)
        self._at = 0
        self._previous_entry = PreviousEntry()

    def runs(self) -> Iterator[Run]:
        """Yield runs up to the end of the segment, clean or not."""
        self._begin()
        while self._index <= self._last_index and self._at < self._segment.file.readable_bytes:
            view = self._data.view(self._at)
            entries = self._decode(view)
            if entries is not None:
                yield entries
            elif self._at + blank_size(view) == self._segment.file.size_bytes:
                return
            elif not self._data.extend(self._at):
                yield self._skip_damage()

    def give_up(self, flag: Flag, reason: str = "") -> Absent:
        """Declare the wanted rest of the segment absent, or one entry if the end is unknown."""
        first_index, last_index = self._index, self._last_index_possible()
        at = self._segment.pos + self._at
        if first_index < self._segment.first_wanted:
            first_index, at = self._segment.first_wanted, -1
        if self._segment.last_expected is None:
            last_index = min(first_index, last_index)
        self._index = self._last_index + 1
        return Absent(
            first_index=first_index,
            last_index=last_index,
            flag=flag,
            reason=reason,
            at=at,
        )

    def _last_index_possible(self) -> int:
        """Limit the lost entries that a manifest can claim by the bytes that are left."""
        bytes_left = self._segment.file.readable_bytes - self._at
        count_max = max(1, bytes_left // disk.ENTRY_HEADER_SIZE)
        return max(self._index, min(self._last_index, self._index + count_max - 1))

    def _begin(self) -> None:
        """Go to the first wanted entry if the index file has it, or else to the first entry."""
        wanted = self._segment.first_wanted
        offset = self._offset_of(wanted) if wanted > self._index else None
        if offset is not None:
            self._index, self._at = wanted, offset
        else:
            blank = blank_size(self._data.view(0))  # Java 0.4 leaves one after a prefix reset
            self._at = blank if blank < self._segment.file.size_bytes else 0
        with contextlib.suppress(ReadError):  # the file before this one may be gone
            self._previous_entry = self._look_back()

    def _decode(self, view: Bytes) -> Entries | None:
        """Check the entries at the start of the view, and advance past them."""
        last_index = self._last_of_block
        pos = self._segment.pos + self._at
        units = self._units.read(self._index, last_index)
        located = locate(view, self._index, last_index, units, pos)
        if not len(located):
            return None
        if self._next_is_hidden(view, located):
            # The last entry is checked against the one after it, which the next view holds.
            if len(located) > 1:
                located = located.head(len(located) - 1)
            elif self._data.extend(self._at):
                return self._decode(self._data.view(self._at))
        context = Context(
            previous=self._previous_entry,
            following_shift=self._shift_after(view, located),
            term_max=self._segment.term_max,
            has_bodies=self._sums_bodies,
        )
        entries = decode(view, located, self._index, units, pos, context)
        self._flag_unreadable(entries)
        self._index += len(entries)
        self._at += located.end
        self._previous_entry = entries.last_entry(self._previous_entry)
        if self._segment.is_sealed and self._index - 1 == self._segment.last_expected:
            zeroed = self._previous_entry.is_covered and self._sums_bodies
            is_sound = ends_with_blank(self._data, self._at, self._segment.file, zeroed=zeroed)
            entries.flags[-1] |= 0 if is_sound else int(Flag.BAD_BLANK)
        return entries

    @property
    def _last_of_block(self) -> int:
        return min(self._last_index, self._index + BLOCK_ENTRIES_MAX - 1)

    def _units_from(self, start: int) -> Records:
        """Return the units of the next entries if they begin at this offset."""
        if start != self._at:
            return np.empty(0, UNIT)
        return self._units.read(self._index, self._last_of_block)

    def _flag_unreadable(self, entries: Entries) -> None:
        """Flag the entries that the member could not read as a whole."""
        starts = entries.at - self._segment.pos
        ends = starts + disk.ENTRY_HEADER_SIZE + entries.bodies.sizes
        for start, end in self._data.unreadable:
            entries.flags[(starts < end) & (ends > start)] |= int(Flag.DISK_ERROR)

    def _shift_after(self, view: Bytes, located: Located) -> int | None:
        """Return the shift of the entry after these, if the view holds its header."""
        if located.end + disk.ENTRY_HEADER_SIZE > len(view):
            return None
        header = disk.unpack_header(view.data, located.end)
        if header.index != self._index + len(located) or header.magic not in disk.ENTRY_MAGICS:
            return None
        return self._segment.pos + self._at + located.end - header.pos

    def _next_is_hidden(self, view: Bytes, located: Located) -> bool:
        """Return whether a wanted entry follows whose header the view does not hold."""
        end = located.end + disk.ENTRY_HEADER_SIZE
        is_wanted = self._index + len(located) <= self._last_index
        return is_wanted and len(view) < end <= self._segment.file.readable_bytes - self._at

    def _skip_damage(self) -> Absent:
        """Continue at the next entry whose header matches its own place, if there is one.

        Its index must also be later than the current one. The scan continues counting there.
        """
        lost_index, shift = self._index, self._previous_entry.shift or 0
        lost_at = self._segment.pos + self._at
        later = range(lost_index + 1, self._last_index_possible() + 1)
        start = self._at + 1
        while True:
            view = self._data.view(start)
            found = find_header(view, self._segment.pos + start - shift, later)
            if found is not None:
                self._at, self._index = start + found[0], found[1]
                self._previous_entry = PreviousEntry(term=self._previous_entry.term, shift=shift)
                return Absent(
                    first_index=lost_index,
                    last_index=self._index - 1,
                    flag=Flag.LOST_ENTRY,
                    at=lost_at,
                )
            start += max(0, len(view) - disk.ENTRY_HEADER_SIZE + 1)
            if not self._data.extend(start):
                return self.give_up(Flag.SHORT_FILE if self._data.is_short else Flag.LOST_ENTRY)

    def _offset_of(self, index: int) -> int | None:
        """Look up an entry's offset in this file in the index file; None if the data disagrees."""
        units = self._units.read(index, index)
        if not len(units):
            return None
        header = self._header_of(units[0], self._segment.file)
        if header is None or header.index != index:
            return None
        return int(units["pos"][0]) - self._segment.pos

    def _look_back(self) -> PreviousEntry:
        """Read the headers of the two entries before the first one, whose chain_crc continues them.

        The earlier header is needed to verify the later one: the chain_crc of an entry after a
        damaged header proves nothing.
        """
        if self._index == 0:
            return PreviousEntry(chain_crc=0)
        units = self._units.read(max(0, self._index - 2), self._index - 1)
        headers = [
            self._header_of(unit, self._segment.file)
            or self._header_of(unit, self._segment.previous)
            for unit in units
        ]
        last = headers[-1] if headers else None
        if last is None or last.index != self._index - 1:
            return PreviousEntry()
        earlier = headers[0] if len(headers) == 2 else None
        if earlier and last.chain_crc not in (0, disk.chain_crc_of(last, earlier.chain_crc)):
            return PreviousEntry()
        shift = int(units["pos"][-1]) - last.pos
        return PreviousEntry(chain_crc=last.chain_crc or None, term=last.term, shift=shift)

    def _header_of(self, unit: np.void, file: SegmentFile | None) -> disk.EntryHeader | None:
        """Read the header that a unit points to, if it points into this file."""
        start = int(unit["pos"]) - disk.start_offset(file.name) if file else -1
        end = start + disk.ENTRY_HEADER_SIZE
        if file is None or start < 0 or end > file.readable_bytes:
            return None
        raw = self._files.read(disk.DATA_FOLDER, file.name, start, end)
        return disk.unpack_header(raw, 0) if len(raw) == disk.ENTRY_HEADER_SIZE else None
