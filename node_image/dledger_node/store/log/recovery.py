"""From the files on disk to a known good end.

1. `examine` reads and changes nothing. What the checkpoint calls durable was flushed, so no crash
   can have torn it: it is not read again, but for its last `MARGIN_BYTES`, and its entries are
   checked when they are served. From there on every record is verified.
2. Where it stops is judged: behind the checkpoint's durable end a crash may have torn what was not
   flushed, and it is cut. Before that end nothing can be torn: StoreDamagedError, and the files
   stay as they are.
3. `repair` cuts, writes index units anew where they disagree with the data, and makes what is left
   durable, so that everything that is served is on disk.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dledger_formats.log import disk
from dledger_formats.log.disk import (
    ENTRY_HEADER_SIZE,
    INDEX_UNIT_SIZE,
    DamagedRecordError,
    EntryHeader,
    EntryScan,
)
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.store.log.files import LogFiles, place
from dledger_node.store.segments.segment import Segment
from dledger_node.store.small_files.checkpoint import Checkpoint

SCAN_ENTRIES_MAX: Final = 8192  # bounds the memory that a scan takes, with the next
WINDOW_BYTES: Final = 1 << 20
_TOO_SHORT: Final = ("short_header", "short_body")
MARGIN_BYTES: Final = 4 << 20
"""How much of what was durable is verified all the same: that checkpoint and log belong together,
and that a disk did not lie about its last flush.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What opening found and did."""

    begin_index: int
    end_index: int
    verified_entries: int
    cut_bytes: int
    """Bytes behind the last sound entry that were in use and now are zero; 0 after an orderly
    stop.
    """
    cut_reason: str
    """Why the first record behind the end was not taken; empty when there was none."""
    rebuilt_units: int
    """Index units that were missing or wrong."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A place between two entries, and what the next entry must fit to."""

    pos: int
    """Where the entry before ends, or a segment begins."""
    index: int
    """Of the next entry."""
    term: int
    """Of the entry before."""
    chain_crc: int | None
    """Of the entry before; None when it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A log as it was found."""

    start: Cursor
    """Where verification began."""
    end: Cursor
    begin_index: int
    stop_reason: str
    """Why the record behind the end was not taken; empty when there is none."""
    bad_units: int
    term_runs: list[tuple[int, int]]


def examine(
    files: LogFiles, checkpoint: Checkpoint | None, *, verify_all: bool = False
) -> Examined:
    """Find the end of the log. StoreDamagedError when something is missing that was durable.

    `verify_all` reads every entry, as is due once damage was found.
    """
    beginning = before_first(files, checkpoint)
    start, runs = beginning, list[tuple[int, int]]()
    if not verify_all:
        # When the index or a sealed segment is wrong, everything is read.
        with contextlib.suppress(StoreDamagedError, IndexError):
            later = _checkpointed_start(files, checkpoint, beginning)
            runs = list(files.term_runs(beginning.index, later.index - 1))
            start = later
    files.data.forget_cache(start.pos)
    walk = Walk(files, start, runs)
    bad_units = 0
    for index, units in walk:
        stored = files.units(index, walk.end.index - 1)
        if stored != units:
            bad_units += _differing_units(stored, units)
    judge(files, checkpoint, walk)
    return Examined(
        start=start,
        end=walk.end,
        begin_index=beginning.index,
        stop_reason=walk.stop_reason,
        bad_units=bad_units,
        term_runs=walk.term_runs,
    )


def repair(files: LogFiles, found: Examined) -> int:
    """Make the files hold what was found and nothing else, durably; returns the bytes cut.

    StoreFullError when a file has holes, or index files are missing, and there is no room.
    """
    for file in (*files.data.files, *files.index.files):
        file.allocate()
    if found.bad_units:
        _write_units(files, found)
    files.index.truncate(found.end.index * INDEX_UNIT_SIZE)
    cut_bytes = files.data.truncate(found.end.pos)
    files.data.sync(files.data.files_between(found.start.pos, files.data.end))
    files.index.sync(tuple(files.index.files))
    return cut_bytes


def finish_replacing(files: LogFiles, checkpoint: Checkpoint | None) -> None:
    """Remove a log that a leader's was to replace, if a crash came before its first entry.

    The checkpoint tells: nothing of the log that begins there was durable yet.
    """
    if checkpoint is None or checkpoint.begin_index is None or not files.data.files:
        return
    first = files.data.files[0]
    if checkpoint.end_index < checkpoint.begin_index and first.start > 0:
        try:
            _first_entry(first)
        except StoreDamagedError:
            files.data.clear()
            files.index.clear()


class Walk:
    """Sound entries from a place on; iterating gives (first index, index units) of each batch.

    After a batch, and when there are no more, `end` is behind the last entry taken.
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
                nothing = not any(file.read(self.stop_pos - file.start, ENTRY_HEADER_SIZE))
                self.stop_reason = "" if nothing else str(scan.damage)
                return

    def _take(self, file: Segment, at: int) -> EntryScan:
        """Take what is sound in a window of the file that holds the next entry as a whole."""
        size = WINDOW_BYTES
        while True:
            window = memoryview(file.read(at, size))
            scan = self._take_from(window, file.start + at)
            whole = at + len(window) == file.size
            if scan.end or whole or scan.damage is None or scan.damage.reason not in _TOO_SHORT:
                return scan
            size *= 2

    def _take_from(self, window: memoryview, pos: int) -> EntryScan:
        term = self.end.term
        scan = self._scan(window, pos, term)
        if scan.damage and scan.damage.reason == "bad_term" and scan.end == 0:
            later_term = disk.unpack_header(window, 0).term
            if later_term > term:
                term = later_term
                scan = self._scan(window, pos, term)
        if scan.end:
            if not self.term_runs or self.term_runs[-1][1] != term:
                self.term_runs.append((self.end.index, term))
            self.end = Cursor(
                pos=pos + scan.end, index=scan.next_index, term=term, chain_crc=scan.chain_crc
            )
        return scan

    def _scan(self, window: memoryview, pos: int, term: int) -> EntryScan:
        return disk.scan_entries(
            window,
            0,
            len(window),
            index=self.end.index,
            term=term,
            pos=pos,
            chain_crc=self.end.chain_crc,
            count_max=SCAN_ENTRIES_MAX,
        )


def before_first(files: LogFiles, checkpoint: Checkpoint | None) -> Cursor:
    """Before the first entry that the data files hold."""
    first = files.data.files[0] if files.data.files else None
    if first is None or first.start == 0:
        return Cursor(pos=0, index=0, term=0, chain_crc=0)
    header = _first_entry(first)
    known_begin = checkpoint.begin_index if checkpoint else None
    if known_begin is not None and header.index > known_begin:
        raise StoreDamagedError(
            f"{first.path} begins with entry {header.index}, and the log began with entry "
            f"{known_begin}: the segments before it are gone",
            Damage.MISSING_SEGMENT,
            known_begin,
        )
    return Cursor(pos=first.start, index=header.index, term=header.term, chain_crc=None)


def _first_entry(file: Segment) -> EntryHeader:
    """The sound entry with which a segment begins; StoreDamagedError."""
    raw = file.read(0, ENTRY_HEADER_SIZE)
    try:
        size = disk.unpack_header(raw, 0).size
        return disk.check_entry(file.read(0, max(size, ENTRY_HEADER_SIZE)), 0, file.size)
    except DamagedRecordError as error:
        raise StoreDamagedError(
            f"{file.path}: the first entry: {error}", Damage.BAD_ENTRY
        ) from None


def _checkpointed_start(
    files: LogFiles, checkpoint: Checkpoint | None, beginning: Cursor
) -> Cursor:
    """A place a margin before the checkpoint's durable end, if all before it fits.

    StoreDamagedError or IndexError when the index does not fit the data.
    """
    if checkpoint is None or checkpoint.end_index < beginning.index:
        return beginning
    last_index = checkpoint.end_index
    files.header(beginning.index)  # the first index files may be gone
    files.header(last_index)
    for file in files.data.files_between(files.data.start + 1, files.end_pos(last_index)):
        if file.start != files.data.start:
            _check_border(files, file)
    first_index = files.first_from(
        files.end_pos(last_index) - MARGIN_BYTES, beginning.index, last_index
    )
    if first_index == beginning.index:
        return beginning
    before = files.header(first_index - 1)
    files.header(first_index)
    pos, end_pos = files.pos(first_index), files.end_pos(first_index - 1)
    if pos not in (end_pos, files.data.file_at(pos).start):
        raise StoreDamagedError(
            f"{place(files.data, pos)}: entry {first_index} does not follow the one before",
            Damage.WRONG_INDEX,
            first_index,
        )
    return Cursor(pos=pos, index=first_index, term=before.term, chain_crc=before.chain_crc)


def _check_border(files: LogFiles, file: Segment) -> None:
    """Whether a segment begins with the entry that the index names, and follows the one before."""
    first = disk.unpack_header(file.read(0, ENTRY_HEADER_SIZE), 0)
    files.header(first.index)
    files.header(first.index - 1)
    if files.pos(first.index) != file.start:
        raise StoreDamagedError(
            f"{file.path} does not begin with entry {first.index}", Damage.WRONG_INDEX
        )


def judge(files: LogFiles, checkpoint: Checkpoint | None, walk: Walk) -> None:
    """Refuse a log that ends too early for a crash to have torn it."""
    index = walk.end.index
    if checkpoint is not None:
        durable = index > checkpoint.end_index
        why = f"the checkpoint says that entries up to {checkpoint.end_index} were durable"
    else:
        durable = not _more_is_sound(files, walk)
        why = "entries behind it are sound, and there is no checkpoint to say how far the log goes"
    if not durable:
        raise StoreDamagedError(
            f"{place(files.data, walk.stop_pos)}: entry {index} is missing or damaged "
            f"({walk.stop_reason or 'nothing is there'}), and {why}. Nothing was changed. The "
            "other members have the entry",
            Damage.BAD_ENTRY if walk.stop_reason else Damage.MISSING_ENTRIES,
            index,
        )


def _more_is_sound(files: LogFiles, walk: Walk) -> bool:
    """Whether the log goes on behind the place where it should end.

    As Java does, more than one segment behind counts; and here also a sound entry after the next,
    unless its term is lower than the last: terms never fall in a log, so that is what Java, which
    cuts without wiping, left there at a truncation.
    """
    data = files.data
    if data.files and data.files[-1].start > walk.stop_pos + data.file_size:
        return True
    try:
        header = files.header(walk.end.index + 1)
        file = data.file_at(files.pos(walk.end.index + 1))
        raw = file.read(files.pos(walk.end.index + 1) - file.start, header.size)
        disk.check_entry(raw, 0, len(raw))
    except (StoreDamagedError, DamagedRecordError, IndexError):
        return False
    return header.term >= walk.end.term


def _write_units(files: LogFiles, found: Examined) -> None:
    if files.index.start > found.begin_index * INDEX_UNIT_SIZE:
        files.index.truncate(0)  # its first files are missing, so all were verified
    files.index.reserve(found.start.index * INDEX_UNIT_SIZE, found.end.index * INDEX_UNIT_SIZE)
    for index, units in Walk(files, found.start, []):
        files.index.write(index * INDEX_UNIT_SIZE, units)


def _differing_units(stored: bytes, expected: bytes) -> int:
    return sum(
        stored[at : at + INDEX_UNIT_SIZE] != expected[at : at + INDEX_UNIT_SIZE]
        for at in range(0, len(expected), INDEX_UNIT_SIZE)
    )


def _is_blank(file: Segment, at: int) -> bool:
    """Whether a blank record fills the file from byte `at` to its end."""
    left = file.size - at
    if left < disk.BLANK_SIZE_MIN:
        return False
    magic, size = disk.BLANK_HEADER.unpack(file.read(at, disk.BLANK_SIZE_MIN))
    return bool(magic == disk.BLANK and size == left)


def report(found: Examined, cut_bytes: int, seconds: float) -> RecoveryReport:
    """Say what was found, and what `repair` did."""
    return RecoveryReport(
        begin_index=found.begin_index,
        end_index=found.end.index - 1,
        verified_entries=found.end.index - found.start.index,
        cut_bytes=cut_bytes,
        cut_reason=found.stop_reason,
        rebuilt_units=found.bad_units,
        seconds=seconds,
    )
