"""Walk over the entries of a log that may be damaged, batch by batch, and continue after damage."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from dledger_formats.log import disk
from dledger_formats.log.disk import INDEX_UNIT_SIZE, DamagedRecordError
from dledger_formats.log.scanning import EntryScan
from dledger_node.store.log.entry_walk import Cursor, scan_from
from dledger_node.store.small_files.checkpoint import Checkpoint
from dledger_node.store_command.log_folder import LogFolder, RawSegment

WINDOW_BYTES: Final = 2 * disk.ENTRY_SIZE_MAX
INDEX_WINDOW_BYTES: Final = 1 << 20
MISSING_SEGMENT: Final = "missing_segment"
UNREADABLE: Final = "unreadable"


class Batch(NamedTuple):
    """Consecutive sound entries of one term in one segment."""

    first_index: int
    term: int
    pos: int
    data: memoryview
    units: bytes
    """The correct index units of the entries."""

    @property
    def last_index(self) -> int:
        """Index of the last entry."""
        return self.first_index + len(self.units) // INDEX_UNIT_SIZE - 1


@dataclass(frozen=True, slots=True)
class Stop:
    """The place where a walk ended."""

    pos: int
    index: int
    reason: str
    """Why the next record was rejected; empty if it is zero or the data files end."""
    detail: str


class LogWalk:
    """Iterate over sound entries in batches; when the iteration has ended, `stop` says why."""

    def __init__(self, data: LogFolder, start: Cursor) -> None:
        self._data = data
        self.end = start
        self.stop = Stop(start.pos, start.index, "", "")

    def __iter__(self) -> Iterator[Batch]:
        pos = self.end.pos
        while True:
            segment = self._data.segment_at(pos)
            if segment is None:
                gap = self._data.next_segment(pos) is not None
                self.stop = Stop(pos, self.end.index, MISSING_SEGMENT if gap else "", "")
                return
            at, limit = pos - segment.start, segment.size
            view = memoryview(segment.read(at, WINDOW_BYTES))
            scan, term = scan_from(self.end, view, pos)
            if scan.end:
                batch = Batch(self.end.index, term, pos, view[: scan.end], scan.units)
                pos += scan.end
                self.end = Cursor(
                    pos=pos, index=scan.next_index, term=term, chain_crc=scan.chain_crc
                )
                yield batch
            elif _is_blank(view, limit - at):
                pos = segment.end
            else:
                self.stop = self._stop(view, segment, at, scan)
                return

    def _stop(self, view: memoryview, segment: RawSegment, at: int, scan: EntryScan) -> Stop:
        pos = segment.start + at
        expected = min(WINDOW_BYTES, segment.size - at)
        cut_short = scan.damage is None or scan.damage.reason.startswith("short")
        if len(view) < expected and cut_short:
            detail = f"the disk cannot read byte {at + len(view)}"
            return Stop(pos, self.end.index, UNREADABLE, detail)
        if not any(view[: disk.ENTRY_HEADER_SIZE]):
            return Stop(pos, self.end.index, "", "")
        assert scan.damage is not None
        return Stop(pos, self.end.index, scan.damage.reason, _detail(scan.damage))


def first_cursor(data: LogFolder, checkpoint: Checkpoint | None = None) -> Cursor | Stop | None:
    """Return the place before the first entry, a Stop if it is damaged, None without segments.

    The checkpoint may prove the header of that entry.
    """
    if not data.segments:
        return None
    first = data.segments[0]
    if first.start == 0:
        return Cursor(pos=0, index=0, term=0, chain_crc=0)
    view = memoryview(first.read(0, WINDOW_BYTES))
    try:
        header = disk.check_entry(view, 0, len(view))
    except DamagedRecordError as error:
        return Stop(first.start, -1, error.reason, _detail(error))
    is_known = checkpoint is not None and checkpoint.begin_index == header.index
    chain_crc = checkpoint.begin_chain_crc if checkpoint and is_known else None
    return Cursor(pos=first.start, index=header.index, term=header.term, chain_crc=chain_crc)


def resume_after(data: LogFolder, index: LogFolder, stop: Stop) -> Cursor | None:
    """Return the place of the next sound entry after a stop; None if the index leads to none."""
    for unit in stored_units(index, stop.index + 1):
        segment = data.segment_at(unit.pos)
        if unit.pos < stop.pos or segment is None or not 0 < unit.size <= disk.ENTRY_SIZE_MAX:
            continue
        view = memoryview(segment.read(unit.pos - segment.start, unit.size))
        try:
            header = disk.check_entry(view, 0, len(view))
        except DamagedRecordError:
            continue
        if (header.index, header.pos, header.term) == (unit.index, unit.pos, unit.term):
            return Cursor(pos=unit.pos, index=unit.index, term=unit.term, chain_crc=None)
    return None


def stored_units(index: LogFolder, first_index: int) -> Iterator[disk.IndexUnit]:
    """Yield the plausible index units from that of first_index on."""
    for segment in index.segments:
        at = max(0, first_index * INDEX_UNIT_SIZE - segment.start)
        while at < segment.size:
            raw = segment.read(at, INDEX_WINDOW_BYTES)
            if any(raw):
                for offset in range(0, len(raw) - INDEX_UNIT_SIZE + 1, INDEX_UNIT_SIZE):
                    unit = disk.unpack_index_unit(raw, offset)
                    if unit.size and unit.index == (segment.start + at + offset) // INDEX_UNIT_SIZE:
                        yield unit
            at += max(len(raw), INDEX_WINDOW_BYTES)


def _is_blank(view: memoryview, left: int) -> bool:
    """Return whether a blank record fills the segment from here to its end."""
    if left < disk.BLANK_SIZE_MIN or len(view) < disk.BLANK_SIZE_MIN:
        return False
    magic, size = disk.BLANK_HEADER.unpack_from(view, 0)
    return bool(magic == disk.BLANK and size == left)


def _detail(damage: DamagedRecordError) -> str:
    """Return the message without its reason and its byte, which is relative to a window."""
    return str(damage).partition(": ")[2].replace(" at byte 0", "")
