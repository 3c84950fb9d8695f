"""Scan the index files of a segment alone: which entries it has, their terms, places and sizes.

No checksum covers an index unit. So each must fit its own place in the file, and its entry must end
where the next one begins; otherwise the unit counts as missing. A wrong term shows only where terms
go back, and the size of a segment's last entry is compared with nothing.
"""

import itertools
from collections.abc import Iterator
from typing import Final

import numpy as np

from dledger_formats.log import disk
from pyspark_dledger.decode import Entries
from pyspark_dledger.files import Files, IndexUnits, ReadError, UnauthorizedError
from pyspark_dledger.layout import HEADER, Bools, Flag, Longs, Records
from pyspark_dledger.locate import Located
from pyspark_dledger.segments import BLOCK_ENTRIES_MAX, Absent, Run, Segment, scan

_NO_BYTES: Final = np.empty(0, np.uint8)


def scan_units(segment: Segment, files: Files, _: int = 0) -> Iterator[Run]:
    """Yield every wanted index once, in order, with what its index unit says.

    An index whose unit is missing or contradicts others is in an `Absent` run, with the flag
    INDEX_FILE_DIFFERS. Segments whose last entry is not known end with the last unit of their own.
    """
    scanner = _Scanner(segment, files)
    try:
        yield from scanner.runs()
    except ReadError as error:
        if scanner.index <= scanner.last:
            yield Absent(
                first_index=scanner.index,
                last_index=scanner.last,
                flag=Flag.UNREADABLE,
                reason=str(error),
                is_unauthorized=isinstance(error, UnauthorizedError),
            )


def scan_units_or_headers(segment: Segment, files: Files, window_bytes: int) -> Iterator[Run]:
    """Scan the index files, and read the headers of entries whose units are missing or wrong."""
    for run in scan_units(segment, files):
        if isinstance(run, Entries) or run.flag != Flag.INDEX_FILE_DIFFERS:
            yield run
            continue
        part = segment.part(run.first_index, run.last_index)
        yield from scan(part, files, window_bytes, sums_bodies=False)


class _Scanner:
    """The state of a scan: all entries before `index` were yielded."""

    def __init__(self, segment: Segment, files: Files) -> None:
        self._segment = segment
        self._files = files
        self._term = 0
        self.index = max(segment.first_wanted, segment.file.first_index)
        self.last = segment.last_wanted
        if segment.last_expected is not None:
            self.last = min(self.last, segment.last_expected)

    def runs(self) -> Iterator[Run]:
        """Yield runs up to the end of the segment."""
        if 0 < self.index <= self.last:
            before = self._read(self.index - 1, self.index - 1)
            if len(before) and before["index"][0] == self.index - 1:
                self._term = int(before["term"][0])
        while self.index <= self.last:
            last = min(self.last, self.index + BLOCK_ENTRIES_MAX - 1)
            units = self._read(self.index, last + 1)  # a unit is checked against the next one
            if not len(units):
                yield self._missing()
                continue
            at = units["pos"].astype(np.int64) - self._segment.pos
            if self._segment.last_expected is None and self._is_behind(units, at):
                return
            yield from self._judged(units, at, min(len(units), last + 1 - self.index))

    def _read(self, first: int, last: int) -> Records:
        return IndexUnits(self._files, self._segment.index_files).read(first, last)

    def _missing(self) -> Absent:
        """Declare the entries absent up to where the next index file begins."""
        starts = [
            disk.start_offset(file.name) // disk.INDEX_UNIT_SIZE
            for file in self._segment.index_files
        ]
        end = min((start for start in starts if start > self.index), default=self.last + 1)
        first, last = self.index, min(self.last, end - 1, self.index + BLOCK_ENTRIES_MAX - 1)
        self.index = last + 1
        return Absent(first_index=first, last_index=last, flag=Flag.INDEX_FILE_DIFFERS)

    def _is_behind(self, units: Records, at: Longs) -> bool:
        """Return whether the first unit, which is sound, points beyond this segment's file."""
        return bool(units["index"][0] == self.index and at[0] >= self._segment.file.size_bytes)

    def _judged(self, units: Records, at: Longs, count: int) -> Iterator[Run]:
        """Yield the first `count` entries, divided where sound units and others meet."""
        sound = _is_sound(units, at, self.index, self._segment)[:count]
        edges = [0, *(np.flatnonzero(sound[1:] != sound[:-1]) + 1).tolist(), count]
        begin = self.index
        for start, end in itertools.pairwise(edges):
            if sound[start]:
                yield self._entries(units[start:end], begin + start)
            else:
                yield Absent(
                    first_index=begin + start,
                    last_index=begin + end - 1,
                    flag=Flag.INDEX_FILE_DIFFERS,
                )
            self.index = begin + end

    def _entries(self, units: Records, first: int) -> Entries:
        headers = np.zeros(len(units), HEADER)
        for name in ("index", "term", "size"):
            headers[name] = units[name]
        headers["body_size"] = units["size"].astype(np.int64) - disk.ENTRY_HEADER_SIZE
        term = units["term"].astype(np.int64)
        before = np.maximum.accumulate(np.concatenate(([self._term], term)))[:-1]
        flags = Flag.TERM_BACK * (term < before)
        if self._segment.term_max is not None:
            flags |= Flag.TERM_ABOVE * (term > self._segment.term_max)
        self._term = max(self._term, int(term[-1]))
        sizes = headers["body_size"].astype(np.int64)
        return Entries(
            index=np.arange(first, first + len(units)),
            at=units["pos"].astype(np.int64),
            headers=headers,
            crc=np.zeros(len(units), np.int64),
            flags=flags.astype(np.int64),
            bodies=Located(offsets=np.zeros(len(units), np.int64), sizes=sizes),
            view=_NO_BYTES,
        )


def _is_sound(units: Records, at: Longs, index: int, segment: Segment) -> Bools:
    """Return which units fit their own place and the next unit; `at` are offsets in the file.

    The last entry of a segment has no next unit there.
    """
    sizes = units["size"].astype(np.int64)
    ends = at + sizes
    fits: Bools = (
        (units["index"] == np.arange(index, index + len(units)))
        & (sizes >= disk.ENTRY_HEADER_SIZE)
        & (sizes <= disk.ENTRY_SIZE_MAX)
        & (at >= 0)
    )
    is_last = np.zeros(len(units), np.bool_)
    if segment.last_expected is not None and 0 <= segment.last_expected - index < len(units):
        is_last[segment.last_expected - index :] = True
    joined = np.append(fits[1:] & (ends[:-1] == at[1:]), True)
    within = ends <= segment.file.readable_bytes
    sound: Bools = fits & within & (joined | is_last)
    return sound
