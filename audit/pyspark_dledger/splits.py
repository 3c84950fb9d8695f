"""Divide a log into tasks of bounded bytes."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark_dledger import plan
from pyspark_dledger.copies import Copy
from pyspark_dledger.files import DiskError, Files, GoneError, IndexUnits, ReadError
from pyspark_dledger.ranges import IndexRange
from pyspark_dledger.segments import Segment

LOOKUPS_MAX: Final = 64
"""Units that are looked up for one end of a task, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive entries, and how many bytes of data files they take; 0 if it is not known."""

    first: int
    last: int
    bytes: int = 0


def tasks(
    copy: Copy, files: Files, wanted: Sequence[IndexRange], task_bytes: int
) -> list[list[Piece]]:
    """Divide the wanted ranges into tasks of at most `task_bytes`, or of one entry.

    The places are those of one copy. Where it has no entries, or its index files are not right,
    tasks may be larger or smaller; no entry is left out.
    """
    grouped: list[list[Piece]] = []
    size = 0
    files = _UntilSilent(files)
    for range_ in wanted:
        for piece in _pieces(copy, files, range_, task_bytes):
            if grouped and size + piece.bytes <= task_bytes:
                grouped[-1].append(piece)
                size += piece.bytes
            else:
                grouped.append([piece])
                size = piece.bytes
    return [_joined(pieces) for pieces in grouped]


def equal_tasks(wanted: Sequence[IndexRange], entries_max: int) -> list[list[Piece]]:
    """Divide the wanted ranges into tasks of at most so many entries."""
    grouped: list[list[Piece]] = []
    room = 0
    for range_ in wanted:
        first = range_.first
        while first <= range_.last:
            if not room:
                grouped.append([])
                room = entries_max
            last = min(range_.last, first + room - 1)
            grouped[-1].append(Piece(first=first, last=last))
            room -= last + 1 - first
            first = last + 1
    return grouped


def last_within(copy: Copy, files: Files, wanted: IndexRange, bytes_max: int) -> int:
    """Return the last index up to which the wanted entries take no more than `bytes_max`.

    It is at least the first wanted index.
    """
    room, last = bytes_max, wanted.first
    files = _UntilSilent(files)
    for piece in _pieces(copy, files, wanted, bytes_max):
        if piece.bytes <= room:
            room, last = room - piece.bytes, piece.last
            continue
        for part in _pieces(copy, files, IndexRange(first=piece.first, last=piece.last), room):
            return part.last if part.bytes <= room else max(last, wanted.first)
    return last


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Join pieces that follow each other."""
    joined = [pieces[0]]
    for piece in pieces[1:]:
        if piece.first == joined[-1].last + 1:
            whole = joined[-1].bytes + piece.bytes
            joined[-1] = Piece(first=joined[-1].first, last=piece.last, bytes=whole)
        else:
            joined.append(piece)
    return joined


def _pieces(copy: Copy, files: Files, wanted: IndexRange, bytes_max: int) -> Iterator[Piece]:
    """Divide a range where segments begin, and where pieces would have more than `bytes_max`."""
    at = wanted.first
    for segment in plan.segments(copy.manifest, wanted):
        first = max(at, segment.file.first_index)
        if at < first:
            yield Piece(first=at, last=first - 1)  # another copy may have what this one lacks
        last = segment.last_wanted
        if segment.last_expected is not None:
            last = min(last, segment.last_expected)
        if first <= last:
            yield from _divided(segment, files, first, last, bytes_max)
        at = max(at, last + 1)
    if at <= wanted.last:
        yield Piece(first=at, last=wanted.last)


def _divided(
    segment: Segment, files: Files, first: int, last: int, bytes_max: int
) -> Iterator[Piece]:
    """Divide entries of one segment; without index units, the numbers of bytes are estimated."""
    places = _Places(segment, files, first, last)
    while first <= last:
        end = places.last_within(first, last, bytes_max)
        yield Piece(first=first, last=end, bytes=places.between(first, end))
        first = end + 1


class _UntilSilent:
    """Files of a member that is not asked again once it did not answer: each try takes long."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._error: ReadError | None = None

    def read(self, folder: str, name: str, start: int, end: int) -> bytes | bytearray:
        """Read as `Files` do. Raises the first error again."""
        if self._error is not None:
            raise self._error
        try:
            return self._files.read(folder, name, start, end)
        except (GoneError, DiskError):
            raise  # other files may be readable
        except ReadError as error:
            self._error = error
            raise


class _Places:
    """Where the entries of a segment begin, by its index units, or else by interpolation."""

    def __init__(self, segment: Segment, files: Files, first: int, last: int) -> None:
        self._segment, self._first, self._last = segment, first, last
        self._units = IndexUnits(files, segment.index_files)
        self._known: dict[int, int] = {}
        self._low = segment.pos
        self._high = segment.pos + segment.file.readable_bytes
        expected = segment.last_expected
        self._count = (last if expected is None else expected) + 1 - segment.file.first_index

    def between(self, first: int, last: int) -> int:
        """Return the number of bytes of these entries."""
        return max(0, self._pos(last + 1) - self._pos(first))

    def last_within(self, first: int, last: int, bytes_max: int) -> int:
        """Return the last index up to which the entries take at most `bytes_max`."""
        if self.between(first, last) <= bytes_max:
            return last
        low, high = first, last  # `low` is enough, and `high` is too much
        for _ in range(LOOKUPS_MAX):
            size = self.between(first, low)
            if high - low <= 1 or bytes_max * 3 // 4 <= size <= bytes_max:
                break
            above = self.between(first, high)
            share = (bytes_max * 7 // 8 - size) / max(1, above - size)
            middle = min(high - 1, max(low + 1, low + int((high - low) * share)))
            if self.between(first, middle) <= bytes_max:
                low = middle
            else:
                high = middle
        return low

    def _pos(self, index: int) -> int:
        if index not in self._known:
            self._known[index] = self._look_up(index)
        return self._known[index]

    def _look_up(self, index: int) -> int:
        segment = self._segment
        at = index - segment.file.first_index
        if at >= self._count:
            return self._high
        with contextlib.suppress(ReadError):
            for unit in self._units.read(index, index):
                if unit["index"] == index and self._low <= unit["pos"] < self._high:
                    return int(unit["pos"])
        return self._low + (self._high - self._low) * at // max(1, self._count)
