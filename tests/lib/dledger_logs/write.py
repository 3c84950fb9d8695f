"""Write a member's log in DLedger's layout, with the checksums that our nodes write."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dledger_formats.log import disk
from dledger_logs.layout import Log, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry before it has a place."""

    term: int
    body: bytes
    magic: int = disk.NORMAL
    channel: int = 0
    is_covered: bool = True
    """False leaves both checksums 0, as Java does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The layout of a log."""

    segment_bytes: int
    index_segment_bytes: int
    first_index: int = 0
    first_pos: int = 0
    """Offset of the first segment in the data files; a multiple of `segment_bytes`."""
    shift: int = 0
    """Bytes by which `pos` in a header is lower than the place, as after a snapshot."""
    has_checksums: bool = True
    """False leaves both checksums 0, as Java does."""


def write_log(root: Path, entries: Iterable[Entry], shape: Shape) -> Log:
    """Write entries into the folder `root`, which must not exist."""
    writer = _Writer(root, shape)
    for index, entry in enumerate(entries, shape.first_index):
        writer.append(index, entry)
    return writer.finish()


class _Writer:
    """Holds the current segment and all index units."""

    def __init__(self, root: Path, shape: Shape) -> None:
        self._root = root
        self._shape = shape
        self._places: list[Place] = []
        self._segment = bytearray(shape.segment_bytes)
        self._segment_pos = shape.first_pos
        self._used = 0
        self._chain_crc = 0
        first_unit = shape.first_index * disk.INDEX_UNIT_SIZE
        self._units_pos = first_unit - first_unit % shape.index_segment_bytes
        self._units = bytearray(first_unit - self._units_pos)
        for folder in (disk.DATA_FOLDER, disk.INDEX_FOLDER):
            (root / folder).mkdir(parents=True)

    def append(self, index: int, entry: Entry) -> None:
        """Write one entry, in the next segment if this one is full."""
        size = disk.ENTRY_HEADER_SIZE + len(entry.body)
        if disk.needs_next_segment(size, self._used, self._shape.segment_bytes):
            self._roll()
        pos = self._segment_pos + self._used
        packed = disk.pack_entries(
            [entry.body], magic=entry.magic, first_index=index, term=entry.term,
            pos=pos - self._shape.shift, previous_chain_crc=self._chain_crc,
            channels=[entry.channel],
        )  # fmt: skip
        self._segment[self._used : self._used + size] = packed.data
        self._chain_crc = packed.chain_crc
        if not (self._shape.has_checksums and entry.is_covered):
            self._chain_crc = 0
            crcs = self._used + disk.CHAIN_CRC_OFFSET
            self._segment[crcs : crcs + 8] = bytes(8)
        segment = disk.file_name(self._segment_pos)
        self._places.append(
            Place(index=index, pos=pos, size=size, segment=segment, offset=self._used)
        )
        self._units += disk.INDEX_UNIT.pack(entry.magic, pos, size, index, entry.term)
        self._used += size

    def finish(self) -> Log:
        """Save the last segment and the index; return the log."""
        self._save_segment()
        step = self._shape.index_segment_bytes
        for start in range(0, max(1, len(self._units)), step):
            units = bytes(self._units[start : start + step]).ljust(step, b"\0")
            name = disk.file_name(self._units_pos + start)
            (self._root / disk.INDEX_FOLDER / name).write_bytes(units)
        return Log(
            root=self._root,
            places=tuple(self._places),
            segment_bytes=self._shape.segment_bytes,
            index_segment_bytes=step,
        )

    def _roll(self) -> None:
        left = self._shape.segment_bytes - self._used
        disk.BLANK_HEADER.pack_into(self._segment, self._used, disk.BLANK, left)
        self._save_segment()
        self._segment = bytearray(self._shape.segment_bytes)
        self._segment_pos += self._shape.segment_bytes
        self._used = 0

    def _save_segment(self) -> None:
        name = disk.file_name(self._segment_pos)
        (self._root / disk.DATA_FOLDER / name).write_bytes(self._segment)
