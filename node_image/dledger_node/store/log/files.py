"""Locate and read entries in the data and index files; read-only and stateless.

The index files are a hint. An index unit says where an entry should be; only the entry's own header
and checksums say whether it is there.
"""

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn

from dledger_formats.log import disk
from dledger_formats.log.channels import ChannelRun
from dledger_formats.log.disk import (
    ENTRY_HEADER_SIZE,
    INDEX_UNIT_SIZE,
    EntryHeader,
    IndexUnit,
)
from dledger_formats.log.scanning import EntryScan, scan_entries
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.store.segments.segment import Segment
from dledger_node.store.segments.segment_list import SegmentList


class Beginning(NamedTuple):
    """Where a log begins."""

    first_index: int
    """Index of the first entry."""
    chain_crc: int | None
    """Chain CRC of the entry before; None if it is not known."""


BELIEVED_BYTES_MAX: Final = 1 << 20
"""An entry that is longer, by its index unit, is read only once its header confirms the length."""


class NotCachedError(Exception):
    """The page cache lacks some of the bytes."""


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of one log. The caller knows which indexes the log holds."""

    data: SegmentList
    index: SegmentList
    wait: bool = True
    """Whether entries may be read from the disk. If not, reads of what the page cache lacks raise
    NotCachedError.
    """

    def unit(self, index: int) -> IndexUnit:
        """Return the index unit of an entry. Raises IndexError if no index file holds it."""
        at = index * INDEX_UNIT_SIZE
        return disk.unpack_index_unit(self._read(self.index, at, at + INDEX_UNIT_SIZE), 0)

    def units(self, first_index: int, last_index: int) -> bytes:
        """Return the stored units of these entries; fewer bytes where the index files end."""
        start = first_index * INDEX_UNIT_SIZE
        end = min((last_index + 1) * INDEX_UNIT_SIZE, self.index.end)
        if not self.index.start <= start < end:
            return b""
        return self.index.read(start, end)

    def pos(self, index: int) -> int:
        """Return the position in the data files where an entry begins."""
        return self.unit(index).pos

    def end_pos(self, index: int) -> int:
        """Return the position in the data files where an entry ends."""
        unit = self.unit(index)
        return unit.pos + unit.size

    def first_from(self, pos: int, first_index: int, last_index: int) -> int:
        """Return the first of these entries that begins at or after `pos`; else last_index + 1."""
        return first_index + bisect.bisect_left(
            range(first_index, last_index + 1), pos, key=self.pos
        )

    def first_in(self, file: Segment, first_index: int, last_index: int) -> int:
        """Return the first of these entries that begins in a segment; else last_index + 1.

        It is looked up once. It never changes: a truncation that removes the first entry of a
        segment removes the segment. Raises StoreDamagedError if the index names another place than
        the segment's beginning: one rotten unit can mislead the search by half of the log.
        """
        if file.first_index is None and first_index <= last_index:
            found = self.first_from(file.start, first_index, last_index)
            unit = self.unit(min(found, last_index))
            if found > last_index and unit.pos + unit.size <= file.start:
                return found
            if found == first_index == unit.index and unit.pos > file.start:
                return found  # retention is removing the segment
            if (unit.index, unit.pos) != (found, file.start):
                self._index_is_wrong(found, unit, f"does not show what {file.path} begins with")
            file.first_index = found
        if file.first_index is None:
            return first_index
        return min(max(file.first_index, first_index), last_index + 1)

    def last_within(self, first_index: int, last_index: int, bytes_max: int) -> int:
        """Return the last of these entries that ends within `bytes_max`; at least the first."""
        limit_pos = self.pos(first_index) + bytes_max
        last_index = min(last_index, first_index + bytes_max // ENTRY_HEADER_SIZE)
        last = self.unit(last_index)
        if last.pos + last.size > limit_pos:
            others = range(first_index + 1, last_index + 1)
            last_index = first_index + bisect.bisect_right(others, limit_pos, key=self.end_pos)
            last = self.unit(last_index)
        if last.index != last_index:
            self._index_is_wrong(last_index, last, "names another entry")
        return last_index

    def segment_run(
        self, first_index: int, last_index: int, bytes_max: int, *, wait: bool
    ) -> tuple[Segment, IndexUnit, IndexUnit] | None:
        """Return the segment of an entry, and the units of the first and the last entry of a run.

        The run begins with `first_index`, ends within its data and index segment and `bytes_max`,
        and has at least one entry. Returns None if that needs a disk read and `wait` is false.
        Raises StoreDamagedError if a unit is wrong.
        """
        index_file = self.index.file_at(first_index * INDEX_UNIT_SIZE)
        last_index = min(last_index, first_index + bytes_max // ENTRY_HEADER_SIZE)
        at = first_index * INDEX_UNIT_SIZE - index_file.start
        end = min((last_index + 1) * INDEX_UNIT_SIZE - index_file.start, index_file.size)
        units = (index_file.read if wait else index_file.read_cached)(at, end - at)
        if units is None:
            return None
        first = disk.unpack_index_unit(units, 0)
        try:
            file = self.data.file_at(first.pos)
        except IndexError:
            self._index_is_wrong(first_index, first, "names a place outside the data files")
        limit_pos = min(first.pos + bytes_max, file.end)

        def end_pos(number: int) -> int:
            unit = disk.unpack_index_unit(units, number * INDEX_UNIT_SIZE)
            return unit.pos + unit.size

        others = range(1, len(units) // INDEX_UNIT_SIZE)
        number = bisect.bisect_right(others, limit_pos, key=end_pos)
        last = disk.unpack_index_unit(units, number * INDEX_UNIT_SIZE)
        if (
            (first.index, last.index) != (first_index, first_index + number)
            or not first.pos < last.pos + last.size <= file.end
        ):  # fmt: skip
            self._index_is_wrong(first_index, first, "names a place outside its segment")
        return file, first, last

    def runs(self, first_index: int, last_index: int) -> list[bytes | bytearray]:
        """Return the stored bytes of these entries, one run per segment.

        Checks the first and the last entry of each run against the index. Raises StoreDamagedError
        if they disagree.
        """
        runs: list[bytes | bytearray] = []
        index = first_index
        while index <= last_index:
            self.header(index)
            start = self.pos(index)
            file = self.data.file_at(start)
            following = self.first_from(file.end, index + 1, last_index)
            self.header(following - 1)
            last = self.unit(following - 1)
            if not start < last.pos + last.size <= file.end:
                self._index_is_wrong(following - 1, last, "names a place after its segment")
            runs.append(self._read(self.data, start, last.pos + last.size))
            index = following
        return runs

    def checked_runs(
        self, first_index: int, last_index: int, begin: Beginning
    ) -> list[bytes | bytearray]:
        """Return what `runs` does, after verifying every checksum that covers an entry.

        One of them is the chain CRC from the entry before. Raises StoreDamagedError.
        """
        previous = self.chain_crc_before(first_index, begin)
        runs = self.runs(first_index, last_index)
        for _ in self._scans(runs, first_index, last_index, previous):
            pass
        return runs

    def channels(self, first_index: int, last_index: int) -> Iterator[ChannelRun]:
        """Verify these entries and yield the runs with channels. Raises StoreDamagedError."""
        runs = self.runs(first_index, last_index)
        for scan in self._scans(runs, first_index, last_index):
            yield from scan.channels

    def _scans(
        self,
        runs: list[bytes | bytearray],
        first_index: int,
        last_index: int,
        chain_crc: int | None = None,
    ) -> Iterator[EntryScan]:
        """Verify runs; `chain_crc` is that of the entry before, None if it is not known."""
        index = first_index
        for run in runs:
            pos, at = self.pos(index), 0
            while at < len(run):
                scan = scan_entries(
                    memoryview(run), at, len(run), index=index, pos=pos + at, chain_crc=chain_crc,
                    term=disk.unpack_header(run, at).term, count_max=last_index + 1 - index,
                )  # fmt: skip
                if scan.next_index == index:
                    raise StoreDamagedError(
                        f"entry {index} is damaged at {place(self.data, pos + at)}: {scan.damage}. "
                        "The other members have the entry",
                        Damage.BAD_ENTRY,
                        index,
                    )
                yield scan
                at, index, chain_crc = scan.end, scan.next_index, scan.chain_crc

    def header(self, index: int) -> EntryHeader:
        """Read the header of an entry at the place that its index unit names.

        Raises StoreDamagedError if header and unit disagree, IndexError if no index file holds the
        unit.
        """
        return self._at_unit(index, self.unit(index), ENTRY_HEADER_SIZE)[1]

    def begins_segment(self, index: int) -> bool:
        """Return whether a data segment begins with this entry, as its index unit says."""
        try:
            unit = self.unit(index)
            return unit.index == index and self.data.file_at(unit.pos).start == unit.pos
        except (StoreDamagedError, IndexError):
            return False

    def checked_entry(self, index: int, begin: Beginning) -> tuple[EntryHeader, bytes]:
        """Read an entry and verify every checksum that covers it. Raises StoreDamagedError."""
        raw = self.checked_bytes(index, begin)
        return disk.unpack_header(raw, 0), bytes(raw[ENTRY_HEADER_SIZE:])

    def checked_bytes(self, index: int, begin: Beginning) -> bytes | bytearray:
        """Read an entry as its stored bytes, and verify every checksum that covers it."""
        at = index * INDEX_UNIT_SIZE
        previous: int | None
        if begin.first_index < index and self.index.file_at(at).start < at:  # in one read
            units = self._read(self.index, at - INDEX_UNIT_SIZE, at + INDEX_UNIT_SIZE)
            before = disk.unpack_index_unit(units, 0)
            unit = disk.unpack_index_unit(units, INDEX_UNIT_SIZE)
            previous = self._at_unit(index - 1, before, ENTRY_HEADER_SIZE)[1].chain_crc
        else:
            unit, previous = self.unit(index), self.chain_crc_before(index, begin)
        if unit.size > BELIEVED_BYTES_MAX:
            self.header(index)  # so that no wrong unit makes this read a whole segment
        raw, _ = self._at_unit(index, unit, max(unit.size, ENTRY_HEADER_SIZE))
        try:
            disk.check_entry(raw, 0, len(raw), previous)
        except disk.DamagedRecordError as error:
            raise StoreDamagedError(
                f"entry {index} is damaged at {place(self.data, unit.pos)}: {error}. The other "
                "members have the entry",
                Damage.BAD_ENTRY,
                index,
            ) from None
        return raw

    def term_runs(self, begin: Beginning, end_index: int) -> Iterator[tuple[int, int]]:
        """Yield (first index, term) for each run of entries of the same term.

        Bisects the index, then verifies the first and the last entry of each run: terms never
        decrease, so every entry between them has the same term. Raises StoreDamagedError.
        """
        index = begin.first_index
        while index <= end_index:
            term = self.unit(index).term
            following = index + bisect.bisect_right(
                range(index, end_index + 1), term, key=lambda i: self.unit(i).term
            )
            self.checked_entry(index, begin)
            self.checked_entry(following - 1, begin)
            yield index, term
            index = following

    def chain_crc_before(self, index: int, begin: Beginning) -> int | None:
        """Return the chain CRC of the entry before this one; None if it is not known.

        Raises StoreDamagedError, IndexError.
        """
        if index > begin.first_index:
            return self.header(index - 1).chain_crc
        if index == 0:
            return 0
        return begin.chain_crc if index == begin.first_index else None

    def _read(self, files: SegmentList, start: int, end: int) -> bytes | bytearray:
        """Read the bytes from `start` to `end`; within one segment, with one system call.

        Unless `wait` is set, raises NotCachedError if they are not in one segment and all cached.
        """
        if self.wait:
            return files.read(start, end)
        file = files.file_at(start)
        data = file.read_cached(start - file.start, end - start) if end <= file.end else None
        if data is None:
            raise NotCachedError
        return data

    def _at_unit(
        self, index: int, unit: IndexUnit, size: int
    ) -> tuple[bytes | bytearray, EntryHeader]:
        """Return the first `size` bytes of an entry, fewer at its segment's end, and its header.

        Raises StoreDamagedError if header and unit disagree.
        """
        try:
            end = min(unit.pos + size, self.data.file_at(unit.pos).end)
            raw = self._read(self.data, unit.pos, end)
            header = disk.unpack_header(raw, 0)
        except (IndexError, disk.DamagedRecordError):
            self._index_is_wrong(index, unit, "names a place outside the data files")
        found = (header.magic, header.size, header.index, header.term)
        if unit.index != index or found != (unit.magic, unit.size, index, unit.term):
            self._index_is_wrong(index, unit, "and the entry's header disagree")
        return raw, header

    def check_begins_segment(self, index: int) -> None:
        """Raise StoreDamagedError unless a data segment begins with this entry."""
        if not self.begins_segment(index):
            raise StoreDamagedError(
                f"{self.index.folder}: the index does not show that a segment begins with entry "
                f"{index}. The next opening that verifies everything rebuilds it",
                Damage.WRONG_INDEX,
                index,
            )

    def _index_is_wrong(self, index: int, unit: IndexUnit, how: str) -> NoReturn:
        raise StoreDamagedError(
            f"entry {index}, {place(self.data, unit.pos)}: the index {how}. To rebuild the index "
            f"files from the data, stop this member, empty {self.index.folder} and start it again",
            Damage.WRONG_INDEX,
            index,
        )


def place(data: SegmentList, pos: int) -> str:
    """Return the file and byte of a position, for error messages."""
    try:
        file = data.file_at(pos)
    except IndexError:
        return f"{data.folder}, position {pos}"
    return f"{file.path}, byte {pos - file.start}"
