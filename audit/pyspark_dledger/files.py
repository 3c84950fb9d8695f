"""A member's files, read in pieces of bounded size. The protocol `Files` hides the transport.

ReadError              a member's bytes could not be read
├── GoneError          the member has no such file
├── DiskError          the member lists the file, and cannot read it
├── OpeningError       the member has not opened its log yet
├── UnauthorizedError  the member demands the audit token of its group, and did not get it
└── AnswerError        the member's response is invalid
"""

from typing import Final, Protocol

import numpy as np

from dledger_formats.http.status import SegmentFile
from dledger_formats.log import disk
from pyspark_dledger.layout import UNIT, Bytes, Records

PAGE_BYTES: Final = 4096
FAILURES_MAX: Final = 200
"""Enough to read around a dozen bad sectors of a segment."""


class ReadError(Exception):
    """A member's bytes could not be read; the message says which bytes, from where, and why."""


class GoneError(ReadError):
    """The member does not have the file, or no longer has it."""


class DiskError(ReadError):
    """The member lists the file, and cannot read it; a retry would not help."""


class OpeningError(ReadError):
    """The member has not opened its log yet and lists no files; the message has its progress."""


class UnauthorizedError(ReadError):
    """The member demands the audit token of its group; the bytes may be sound."""


class AnswerError(ReadError):
    """The member's response is invalid; a retry would not help."""


class Files(Protocol):
    """The files of one member, up to the readable bytes that its manifest lists."""

    def read(self, folder: str, name: str, start: int, end: int) -> bytes | bytearray:
        """Return the bytes [start, end), or fewer if the file ends before `end`.

        Raises ReadError if the bytes could not be read.
        """
        ...


class Window:
    """The part of a data file that is held in memory."""

    def __init__(self, files: Files, file: SegmentFile, window_bytes: int) -> None:
        self._files = files
        self._file = file
        self._window_bytes = window_bytes
        self._start = 0
        self._bytes: Bytes = np.empty(0, np.uint8)
        self.is_short = False
        """Whether the file turned out to be shorter than its readable bytes."""
        self.unreadable: list[tuple[int, int]] = []
        """Offsets [start, end) in the file that the member cannot read; they show as zeros."""
        self.failures = 0
        """Requests that the member could not answer from its disk."""

    def view(self, start: int) -> Bytes:
        """Return the bytes of the file from `start` on: at least one, or none after its end."""
        if not self._start <= start < self._start + len(self._bytes):
            self._load(start)
        return self._bytes[start - self._start :]

    def extend(self, start: int) -> bool:
        """Make `view(start)` return more bytes; return False if it cannot return any more."""
        if self._start + len(self._bytes) >= self._end(start) or self.is_short:
            return False
        self._load(start)
        return True

    def _end(self, start: int) -> int:
        return min(start + self._window_bytes, self._file.readable_bytes)

    def _load(self, start: int) -> None:
        raw: bytes | bytearray = b""
        if start < self._end(start):
            raw = self._read(start, self._end(start))
            self.is_short = self.is_short or len(raw) < self._end(start) - start
        self._start, self._bytes = start, np.frombuffer(raw, np.uint8)

    def _read(self, start: int, end: int) -> bytes | bytearray:
        """Read all pages that the member can read; the others are zeros.

        Raises DiskError after FAILURES_MAX failed requests of this window.
        """
        whole = bytearray()
        at, step = start, end - start
        while at < end:
            page_end = at - at % PAGE_BYTES + PAGE_BYTES
            stop = min(end, max(page_end, (at + step) // PAGE_BYTES * PAGE_BYTES))
            stop = end if at == start and step == end - start else stop
            try:
                raw = self._files.read(disk.DATA_FOLDER, self._file.name, at, stop)
            except DiskError:
                self.failures += 1
                if self.failures > FAILURES_MAX:
                    raise
                if stop > page_end:
                    step = (stop - at) // 2
                    continue
                self.unreadable.append((at, stop))
                raw = bytes(stop - at)
            if not whole and len(raw) == end - start:
                return raw
            whole += raw
            if len(raw) < stop - at:
                break
            at, step = stop, 2 * step
        return whole


class IndexUnits:
    """The units of a member's index files. Units are only hints: any of them may be missing."""

    def __init__(self, files: Files, index_files: tuple[SegmentFile, ...]) -> None:
        self._files = files
        self._index_files = index_files
        self._first = 0
        self._block: Records = np.empty(0, UNIT)

    def read(self, first: int, last: int) -> Records:
        """Return the units from `first` up to `last`, possibly fewer or none.

        Fetched units are kept for the next call.
        """
        if not self._first <= first < self._first + len(self._block):
            self._first, self._block = first, self._fetch(first, last)
        return self._block[first - self._first : last + 1 - self._first]

    def _fetch(self, first: int, last: int) -> Records:
        at, end = first * disk.INDEX_UNIT_SIZE, (last + 1) * disk.INDEX_UNIT_SIZE
        parts = []
        for file in self._index_files:
            start = disk.start_offset(file.name)
            part_end = min(end, start + file.readable_bytes)
            if start <= at < part_end:
                parts.append(self._read(file, at - start, part_end - start))
                at += len(parts[-1])
        raw = b"".join(parts)
        return np.frombuffer(raw, UNIT, count=len(raw) // disk.INDEX_UNIT_SIZE)

    def _read(self, file: SegmentFile, start: int, end: int) -> bytes | bytearray:
        try:
            return self._files.read(disk.INDEX_FOLDER, file.name, start, end)
        except (GoneError, DiskError):
            return b""
