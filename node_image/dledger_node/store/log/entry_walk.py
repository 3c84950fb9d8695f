"""Walk over the sound entries of a log, from its first entry or from a later place."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dledger_formats.log import disk
from dledger_formats.log.disk import ENTRY_HEADER_SIZE, DamagedRecordError, EntryHeader
from dledger_formats.log.scanning import EntryScan, scan_entries
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.store.log.files import LogFiles
from dledger_node.store.segments.segment import Segment
from dledger_node.store.small_files.checkpoint import Checkpoint

SCAN_ENTRIES_MAX: Final = 8192  # bounds, with WINDOW_BYTES, the memory that a scan takes
WINDOW_BYTES: Final = 1 << 20
_TOO_SHORT: Final = ("short_header", "short_body")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A place between two entries, with the values that the next entry must match."""

    pos: int
    """Where the previous entry ends, or a segment begins."""
    index: int
    """Index of the next entry."""
    term: int
    """Term of the previous entry."""
    chain_crc: int | None
    """Chain CRC of the previous entry; None if unknown."""


class EntryWalk:
    """Iterate over sound entries in batches of (first index, index units).

    `end` is the place after the last entry yielded so far. When the iteration has ended,
    `stop_pos` and `stop_reason` say where and why.
    """

    def __init__(self, files: LogFiles, start: Cursor, term_runs: list[tuple[int, int]]) -> None:
        self._data = files.data
        self.end = start
        self.term_runs = list(term_runs)
        self.stop_pos = start.pos
        self.stop_reason = ""

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        self.stop_pos = self.end.pos
        while self.stop_pos < self._data.end:
            file = self._data.file_at(self.stop_pos)
            first_index = self.end.index
            scan = self._take(file, self.stop_pos - file.start)
            if self.end.index > first_index:
                self.stop_pos = self.end.pos
                yield first_index, scan.units
            elif _is_blank(file, self.stop_pos - file.start):
                self.stop_pos = file.end
            else:
                is_zero = not any(file.read(self.stop_pos - file.start, ENTRY_HEADER_SIZE))
                self.stop_reason = "" if is_zero else str(scan.damage)
                return

    def _take(self, file: Segment, at: int) -> EntryScan:
        """Take the sound entries of a window that is large enough for the next entry."""
        size = WINDOW_BYTES
        while True:
            window = memoryview(file.read(at, size))
            scan = self._take_from(window, file.start + at)
            whole = at + len(window) == file.size
            if scan.end or whole or scan.damage is None or scan.damage.reason not in _TOO_SHORT:
                return scan
            size *= 2

    def _take_from(self, window: memoryview, pos: int) -> EntryScan:
        scan, term = scan_from(self.end, window, pos)
        if scan.end:
            if not self.term_runs or self.term_runs[-1][1] != term:
                self.term_runs.append((self.end.index, term))
            self.end = Cursor(
                pos=pos + scan.end, index=scan.next_index, term=term, chain_crc=scan.chain_crc
            )
        return scan


def scan_from(cursor: Cursor, window: memoryview, pos: int) -> tuple[EntryScan, int]:
    """Scan the window, which begins at `pos`, for the entries that follow the cursor.

    Returns the scan and the term of the entries: the cursor's, or a later one that begins here.
    """
    scan = _scan_term(cursor, window, pos, cursor.term)
    if scan.end or scan.damage is None or scan.damage.reason != "bad_term":
        return scan, cursor.term
    term = disk.unpack_header(window, 0).term
    if term <= cursor.term:
        return scan, cursor.term
    return _scan_term(cursor, window, pos, term), term


def _scan_term(cursor: Cursor, window: memoryview, pos: int, term: int) -> EntryScan:
    return scan_entries(
        window,
        0,
        len(window),
        index=cursor.index,
        term=term,
        pos=pos,
        chain_crc=cursor.chain_crc,
        count_max=SCAN_ENTRIES_MAX,
    )


def before_first(files: LogFiles, checkpoint: Checkpoint | None) -> Cursor:
    """Return the place before the first entry. Raises StoreDamagedError if segments are missing."""
    first = files.data.files[0] if files.data.files else None
    if first is None or first.start == 0:
        return Cursor(pos=0, index=0, term=0, chain_crc=0)
    header = first_entry(first)
    known_begin = checkpoint.begin_index if checkpoint else None
    if known_begin is not None and header.index > known_begin:
        raise StoreDamagedError(
            f"{first.path} begins with entry {header.index}, but the log began with entry "
            f"{known_begin}: earlier segments are missing",
            Damage.MISSING_SEGMENT,
            known_begin,
        )
    chain_crc = checkpoint.begin_chain_crc if checkpoint and header.index == known_begin else None
    return Cursor(pos=first.start, index=header.index, term=header.term, chain_crc=chain_crc)


def first_entry(file: Segment) -> EntryHeader:
    """Read the first entry of a segment. Raises StoreDamagedError if it is not sound."""
    raw = file.read(0, ENTRY_HEADER_SIZE)
    try:
        size = disk.unpack_header(raw, 0).size
        return disk.check_entry(file.read(0, max(size, ENTRY_HEADER_SIZE)), 0, file.size)
    except DamagedRecordError as error:
        raise StoreDamagedError(
            f"{file.path}: the first entry is not sound: {error}", Damage.BAD_ENTRY
        ) from None


def _is_blank(file: Segment, at: int) -> bool:
    """Return whether a blank record fills a file from byte `at` to its end."""
    left = file.size - at
    if left < disk.BLANK_SIZE_MIN:
        return False
    magic, size = disk.BLANK_HEADER.unpack(file.read(at, disk.BLANK_SIZE_MIN))
    return bool(magic == disk.BLANK and size == left)
