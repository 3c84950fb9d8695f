"""Data and index files together: where an entry lies, read-only and without a memory of its own.

The index files are a hint. A unit says where an entry should be; whether it is there, the entry's
own header and checksums say.
"""

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from dledger_formats.log import disk
from dledger_formats.log.channels import ChannelEntry
from dledger_formats.log.disk import (
    ENTRY_HEADER_SIZE,
    INDEX_UNIT_SIZE,
    EntryHeader,
    EntryScan,
    IndexUnit,
)
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.store.segments.segment_list import SegmentList


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of one log. The caller knows which indexes are in it."""

    data: SegmentList
    index: SegmentList

    def unit(self, index: int) -> IndexUnit:
        """What the index files say of an entry; IndexError when they do not reach there."""
        at = index * INDEX_UNIT_SIZE
        return disk.unpack_index_unit(self.index.read(at, at + INDEX_UNIT_SIZE), 0)

    def units(self, first_index: int, last_index: int) -> bytes:
        """The stored units of these entries; fewer bytes where the index files end."""
        start = first_index * INDEX_UNIT_SIZE
        end = min((last_index + 1) * INDEX_UNIT_SIZE, self.index.end)
        if not self.index.start <= start < end:
            return b""
        return self.index.read(start, end)

    def pos(self, index: int) -> int:
        """Where an entry begins in the data files."""
        return self.unit(index).pos

    def end_pos(self, index: int) -> int:
        """Where an entry ends in the data files."""
        unit = self.unit(index)
        return unit.pos + unit.size

    def first_from(self, pos: int, first_index: int, last_index: int) -> int:
        """The first entry of these that begins at `pos` or behind; last_index + 1 for none."""
        return first_index + bisect.bisect_left(
            range(first_index, last_index + 1), pos, key=self.pos
        )

    def last_within(self, first_index: int, last_index: int, bytes_max: int) -> int:
        """The last entry of these that ends within `bytes_max` of the first; at least the first."""
        limit_pos = self.pos(first_index) + bytes_max
        if self.end_pos(last_index) <= limit_pos:
            return last_index
        others = range(first_index + 1, last_index + 1)
        return first_index + bisect.bisect_right(others, limit_pos, key=self.end_pos)

    def runs(self, first_index: int, last_index: int) -> list[bytes]:
        """Stored bytes of these entries, one run per segment. StoreDamagedError.

        Each run begins and ends where the data say so too, whatever the index says in between.
        """
        runs: list[bytes] = []
        index = first_index
        while index <= last_index:
            self.header(index)
            start = self.pos(index)
            file = self.data.file_at(start)
            following = self.first_from(file.end, index + 1, last_index)
            self.header(following - 1)
            last = self.unit(following - 1)
            if not start < last.pos + last.size <= file.end:
                self._index_is_wrong(following - 1, last, "names a place behind its segment")
            runs.append(file.read(start - file.start, last.pos + last.size - start))
            index = following
        return runs

    def checked_runs(self, first_index: int, last_index: int) -> list[bytes]:
        """As `runs`, with every checksum verified that covers one of the entries."""
        runs = self.runs(first_index, last_index)
        for _ in self._scans(runs, first_index, last_index):
            pass
        return runs

    def channels(self, first_index: int, last_index: int) -> Iterator[ChannelEntry]:
        """Those of these entries that have a channel, verified. StoreDamagedError."""
        runs = self.runs(first_index, last_index)
        for scan in self._scans(runs, first_index, last_index):
            yield from scan.channels

    def _scans(self, runs: list[bytes], first_index: int, last_index: int) -> Iterator[EntryScan]:
        index = first_index
        for run in runs:
            pos, at, chain_crc = self.pos(index), 0, None
            while at < len(run):
                scan = disk.scan_entries(
                    memoryview(run), at, len(run), index=index, pos=pos + at, chain_crc=chain_crc,
                    term=disk.unpack_header(run, at).term, count_max=last_index + 1 - index,
                )  # fmt: skip
                if scan.next_index == index:
                    raise StoreDamagedError(
                        f"entry {index}: {place(self.data, pos + at)}: {scan.damage}. The other "
                        "members have the entry",
                        Damage.BAD_ENTRY,
                        index,
                    )
                yield scan
                at, index, chain_crc = scan.end, scan.next_index, scan.chain_crc

    def header(self, index: int) -> EntryHeader:
        """The header at the place that the unit names, which it must agree with.

        StoreDamagedError when it does not; IndexError when the index files do not reach there.
        """
        unit = self.unit(index)
        try:
            raw = self.data.read(unit.pos, unit.pos + ENTRY_HEADER_SIZE)
            header = disk.unpack_header(raw, 0)
        except (IndexError, disk.DamagedRecordError):
            self._index_is_wrong(index, unit, "names a place outside of the data files")
        self._check_unit(index, unit, header)
        return header

    def checked_entry(self, index: int, begin_index: int) -> tuple[EntryHeader, bytes]:
        """An entry and its body, with every checksum that covers it verified. StoreDamagedError."""
        header = self.header(index)
        previous = self._previous_chain_crc(index, begin_index)
        pos = self.pos(index)
        file = self.data.file_at(pos)
        raw = file.read(pos - file.start, max(header.size, ENTRY_HEADER_SIZE))
        try:
            disk.check_entry(raw, 0, len(raw), previous)
        except disk.DamagedRecordError as error:
            raise StoreDamagedError(
                f"entry {index}: {place(self.data, pos)}: {error}. The other members have the "
                "entry",
                Damage.BAD_ENTRY,
                index,
            ) from None
        return header, raw[ENTRY_HEADER_SIZE:]

    def term_runs(self, begin_index: int, end_index: int) -> Iterator[tuple[int, int]]:
        """First index and term of every run of entries of one term.

        Found by bisection of the index, and confirmed by the first and the last entry of each run:
        terms never fall, so all between have that term too. StoreDamagedError.
        """
        index = begin_index
        while index <= end_index:
            term = self.unit(index).term
            following = index + bisect.bisect_right(
                range(index, end_index + 1), term, key=lambda i: self.unit(i).term
            )
            self.checked_entry(index, begin_index)
            self.checked_entry(following - 1, begin_index)
            yield index, term
            index = following

    def _previous_chain_crc(self, index: int, begin_index: int) -> int | None:
        if index > begin_index:
            return self.header(index - 1).chain_crc
        return 0 if index == 0 else None

    def _check_unit(self, index: int, unit: IndexUnit, header: EntryHeader) -> None:
        found = (header.magic, header.size, header.index, header.term)
        if unit.index != index or found != (unit.magic, unit.size, index, unit.term):
            self._index_is_wrong(index, unit, "and the entry's header disagree")

    def _index_is_wrong(self, index: int, unit: IndexUnit, how: str) -> NoReturn:
        raise StoreDamagedError(
            f"entry {index}: {place(self.data, unit.pos)}: the index {how}. To have the index "
            f"files made anew from the data, stop this member and empty {self.index.folder}",
            Damage.WRONG_INDEX,
            index,
        )


def place(data: SegmentList, pos: int) -> str:
    """File and byte of a position, for people."""
    try:
        file = data.file_at(pos)
    except IndexError:
        return f"{data.folder}, position {pos}"
    return f"{file.path}, byte {pos - file.start}"
