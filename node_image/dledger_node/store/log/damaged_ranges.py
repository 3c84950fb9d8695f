"""Find every damaged range of a log, up to the committed index; read-only.

A range reaches from the last sound entry before the damage to the first sound entry after it. It is
`bounded` if both of them show what belongs between them. The entry after it proves this: its chain
checksum covers the chain of the entry before. Index units hint at where the next sound entry is;
without a hint, the bytes are searched for a header that names its own position.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger_formats.log import disk
from dledger_formats.log.disk import (
    ENTRY_HEADER_SIZE,
    ENTRY_MAGICS,
    INDEX_UNIT_SIZE,
    POS_OFFSET,
    DamagedRecordError,
    EntryHeader,
)
from dledger_node.errors import StoreDamagedError
from dledger_node.store.log.entry_walk import WINDOW_BYTES, Cursor, EntryWalk
from dledger_node.store.log.files import Beginning, LogFiles
from dledger_node.store.segments.patched_segments import Patch, PatchedSegments, absent
from dledger_node.store.segments.segment import Segment
from dledger_node.store.small_files.checkpoint import Checkpoint

UNITS_AT_ONCE: Final = 8192
LOOK_BACK_MAX: Final = 1000
HEADERS_MAX: Final = 8
"""Headers that `headers_after` returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRange:
    """Entries that cannot be read or fail their checksums."""

    start: Cursor
    """The place after the last sound entry before the range."""
    end_pos: int
    """Position of the first sound entry after the range."""
    end_index: int
    """Index of that entry."""

    def __str__(self) -> str:
        first, last = self.start.index, self.end_index - 1
        return f"entry {first}" if first == last else f"entries {first} to {last}"

    @property
    def entry_count(self) -> int:
        """Number of damaged entries."""
        return self.end_index - self.start.index


@dataclass(frozen=True, slots=True, kw_only=True)
class LogShape:
    """Where the files of a log are, and how large each must be."""

    folder: Path
    segment_size_bytes: int
    index_segment_size_bytes: int

    def read(self, start: int, end: int, patch: Patch | None = None) -> LogFiles:
        """Open the segments between two positions, and all index files; the caller closes them."""
        data = PatchedSegments(
            self.folder / disk.DATA_FOLDER, self.segment_size_bytes, start, end, patch
        )
        index_folder, size = self.folder / disk.INDEX_FOLDER, self.index_segment_size_bytes
        starts = named_starts(index_folder)
        low, high = (min(starts), max(starts) + size) if starts else (0, 0)
        return LogFiles(data, PatchedSegments(index_folder, size, low, high))


def named_starts(folder: Path) -> list[int]:
    """Return the positions that a folder's file names give, whatever the sizes of the files."""
    starts = []
    for path in folder.iterdir():
        try:
            starts.append(disk.start_offset(path.name))
        except ValueError:
            continue
    return sorted(starts)


def damaged_ranges(shape: LogShape, checkpoint: Checkpoint | None) -> Iterator[DamagedRange]:
    """Yield the bounded ranges of committed entries that are damaged, oldest first; blocks.

    Stops at the first damage that no sound committed entry follows. Yields nothing without a
    checkpoint, which says which entries are committed and so cannot be a torn tail.
    """
    if checkpoint is None or checkpoint.committed_index < 0:
        return
    cursor, end = beginning(shape, checkpoint)
    if cursor is None:
        return
    with closing(shape.read(cursor.pos, end)) as files:
        while True:
            scanned = scan(files, cursor, checkpoint.committed_index)
            if scanned.damaged is None:
                return
            yield scanned.damaged
            cursor = scanned.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """The result of `scan`."""

    end: Cursor
    """Where to continue: after the damaged range, if there is one."""
    read_bytes: int
    damaged: DamagedRange | None
    is_whole: bool
    """Whether all committed entries from the start on were sound."""
    is_done: bool
    """Whether no committed entry is left, or none that `scan` can reach."""


def scan(
    files: LogFiles, start: Cursor, committed_index: int, bytes_max: int | None = None
) -> Scanned:
    """Verify entries up to the committed index, the first damage, or about `bytes_max` bytes."""
    walk = EntryWalk(files, start, [])
    for _ in walk:
        read_bytes = walk.end.pos - start.pos
        is_done = walk.end.index > committed_index
        if is_done or (bytes_max is not None and read_bytes >= bytes_max):
            return Scanned(
                end=walk.end, read_bytes=read_bytes, damaged=None, is_whole=True, is_done=is_done
            )
    damaged = next_range(files, walk, committed_index)
    end = walk.end
    if damaged is not None:
        end = Cursor(
            pos=damaged.end_pos, index=damaged.end_index, term=walk.end.term, chain_crc=None
        )
    return Scanned(
        end=end,
        read_bytes=walk.end.pos - start.pos,
        damaged=damaged,
        is_whole=walk.end.index > committed_index,
        is_done=damaged is None,
    )


def place_before(files: LogFiles, index: int, begin: Beginning) -> Cursor | None:
    """Return the place after a sound entry shortly before entry `index`; None if there is none.

    The index files say where the entries are. The header of the returned entry follows from the
    entry before it, so the header is sound, too.
    """
    for before in range(index - 1, max(begin.first_index, index - LOOK_BACK_MAX) - 1, -1):
        try:
            pos = files.pos(before)
            header = sound_header(files, pos, before)
            chain_crc = files.chain_crc_before(before, begin)
        except StoreDamagedError:
            continue
        except IndexError:
            return None
        if header is not None and follows(header, chain_crc):
            return Cursor(
                pos=pos + header.size,
                index=before + 1,
                term=header.term,
                chain_crc=header.chain_crc,
            )
    return None


def follows(header: EntryHeader, chain_crc: int | None) -> bool:
    """Return whether a header follows from the entry before, as far as anything covers it."""
    if chain_crc is None or header.chain_crc == 0:
        return True
    return disk.chain_crc_of(header, chain_crc) == header.chain_crc


def headers_after(files: LogFiles, damaged: DamagedRange, committed_index: int) -> bytes:
    """Return the headers of some committed entries after a range that pass their own checksums.

    Several are returned, since an entry's term and channel are proved only by entries before it.
    """
    first = damaged.end_index
    last = min(committed_index, first + HEADERS_MAX - 2)
    units = files.units(first + 1, last) + files.units(committed_index, committed_index)
    places = [(first, damaged.end_pos)]
    for at in range(0, len(units), INDEX_UNIT_SIZE):
        unit = disk.unpack_index_unit(units, at)
        places.append((unit.index, unit.pos))
    return b"".join(
        _header_at(files, pos)
        for index, pos in places
        if first <= index <= committed_index and _is_sound(files, pos, index)
    )


def _header_at(files: LogFiles, pos: int) -> bytes:
    file = files.data.file_at(pos)
    return bytes(file.read(pos - file.start, ENTRY_HEADER_SIZE))


@contextlib.contextmanager
def closing(files: LogFiles) -> Iterator[LogFiles]:
    """Close the files at the end."""
    try:
        yield files
    finally:
        files.data.close()
        files.index.close()


def beginning(shape: LogShape, checkpoint: Checkpoint) -> tuple[Cursor | None, int]:
    """Return the place before the log's first entry, and the end of its last segment."""
    size, begin_index = shape.segment_size_bytes, checkpoint.begin_index
    starts = [start for start in named_starts(shape.folder / disk.DATA_FOLDER) if start % size == 0]
    if not starts or begin_index is None:
        return None, 0
    start, end = starts[0], starts[-1] + size
    if begin_index == 0:
        return Cursor(pos=0, index=0, term=0, chain_crc=0), end
    with closing(shape.read(start, end)) as files, contextlib.suppress(IndexError):
        unit = files.unit(begin_index)
        # Otherwise the first file begins with the log's first entry, unless it is missing too.
        if unit.index == begin_index and unit.pos % size == 0 and 0 < unit.pos < end:
            start = unit.pos
    chain_crc = checkpoint.begin_chain_crc
    return Cursor(pos=start, index=begin_index, term=0, chain_crc=chain_crc), end


def next_range(files: LogFiles, walk: EntryWalk, committed_index: int) -> DamagedRange | None:
    """Return the range that ended a walk; None if it is not bounded by committed entries."""
    return _range_to_next(files, walk.end, walk.end.index, walk.end.pos, committed_index)


def longer(files: LogFiles, found: DamagedRange, committed_index: int) -> DamagedRange | None:
    """Return a range extended to the second sound entry after it, since the first may be damaged.

    The first one's header can be checked only once the entries before it are sound.
    """
    return _range_to_next(files, found.start, found.end_index, found.end_pos, committed_index)


def _range_to_next(
    files: LogFiles, start: Cursor, index: int, pos: int, committed_index: int
) -> DamagedRange | None:
    """Return the range from `start` to the first sound entry after entry `index` at `pos`."""
    if index >= committed_index:
        return None
    found = _next_by_index(files, index, pos, committed_index)
    found = found or _next_by_header(files, index, pos, committed_index)
    if found is None:
        return None
    end_index, end_pos = found
    return DamagedRange(start=start, end_pos=end_pos, end_index=end_index)


def _next_by_index(
    files: LogFiles, after_index: int, after_pos: int, committed_index: int
) -> tuple[int, int] | None:
    skipped = range(0)  # of a missing segment of short entries, a search of each takes minutes
    for first in range(after_index + 1, committed_index + 1, UNITS_AT_ONCE):
        units = files.units(first, min(committed_index, first + UNITS_AT_ONCE - 1))
        for number in range(len(units) // INDEX_UNIT_SIZE):
            unit = disk.unpack_index_unit(units, number * INDEX_UNIT_SIZE)
            if unit.index != first + number or unit.pos <= after_pos or unit.pos in skipped:
                continue
            if _is_sound(files, unit.pos, unit.index):
                return unit.index, unit.pos
            with contextlib.suppress(IndexError):
                skipped = absent(files.data, unit.pos)
    return None


def _next_by_header(
    files: LogFiles, after_index: int, after_pos: int, committed_index: int
) -> tuple[int, int] | None:
    """Search the bytes after a position for an entry whose header names its own position.

    Its index is not known in advance, so it counts only if another entry follows from it.
    """
    for file in files.data.files_between(after_pos, files.data.end):
        if not file.path.exists():
            continue
        for at in _named_places(file, max(0, after_pos + 1 - file.start)):
            header = disk.unpack_header(file.read(at, ENTRY_HEADER_SIZE), 0)
            is_possible = after_index < header.index <= committed_index
            if is_possible and _is_followed(files, header):
                return header.index, header.pos
    return None


def _is_followed(files: LogFiles, header: EntryHeader) -> bool:
    """Return whether an entry is sound, and the next one follows from it."""
    place = Cursor(pos=header.pos, index=header.index, term=header.term, chain_crc=None)
    walk = EntryWalk(files, place, [])
    return any(walk.end.index > header.index + 1 for _ in walk)


def _named_places(file: Segment, begin: int) -> Iterator[int]:
    """Yield the bytes of a file from `begin` on where a header names its own position, in order.

    A header that the file cuts short is a part of a body.
    """
    for low in range(begin, file.size, WINDOW_BYTES):
        window = file.read(low, WINDOW_BYTES + ENTRY_HEADER_SIZE - 1)
        for at in sorted(at for magic in ENTRY_MAGICS for at in _occurrences(window, magic)):
            named = window[at + POS_OFFSET : at + POS_OFFSET + 8]
            is_whole = at + ENTRY_HEADER_SIZE <= len(window)
            if is_whole and int.from_bytes(named) == file.start + low + at:
                yield low + at


def _occurrences(window: bytes, magic: int) -> Iterator[int]:
    """Yield where a magic number is found in the first WINDOW_BYTES bytes."""
    wanted = magic.to_bytes(4)
    end = WINDOW_BYTES + len(wanted) - 1
    at = window.find(wanted, 0, end)
    while at >= 0:
        yield at
        at = window.find(wanted, at + 1, end)


def _is_sound(files: LogFiles, pos: int, index: int) -> bool:
    return sound_header(files, pos, index) is not None


def sound_header(files: LogFiles, pos: int, index: int) -> EntryHeader | None:
    """Return the header of entry `index` at `pos`; None unless it passes its own checksums."""
    try:
        file = files.data.file_at(pos)
        at = pos - file.start
        size = disk.unpack_header(file.read(at, ENTRY_HEADER_SIZE), 0).size
        if not ENTRY_HEADER_SIZE <= size <= file.size - at:
            return None
        header = disk.check_entry(file.read(at, size), 0, size)
    except (IndexError, DamagedRecordError):
        return None
    return header if (header.index, header.pos) == (index, pos) else None
