"""The segments of one kind as raw bytes, some of which may be missing or unreadable."""

import errno
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger_formats.log import disk

PAGE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class RawSegment:
    """One segment file of the expected length, opened only to read it."""

    path: Path
    start: int
    size: int

    @property
    def end(self) -> int:
        """Position after the last byte."""
        return self.start + self.size

    @property
    def label(self) -> str:
        """Folder and name, for reports."""
        return f"{self.path.parent.name}/{self.path.name}"

    def read(self, at: int, size: int) -> bytes:
        """Read from byte `at` on; fewer bytes at the end of the file or before a bad page."""
        size = min(size, self.size - at)
        try:
            fd = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""
        try:
            return _read(fd, at, size)
        finally:
            os.close(fd)


@dataclass(frozen=True, slots=True)
class LogFolder:
    """The segments of `data/` or `index/` in order; there may be gaps."""

    folder: Path
    segments: tuple[RawSegment, ...]
    segment_size: int
    """Length of each segment file; 0 if there is none."""
    strange: tuple[tuple[str, str], ...]
    """Names of files that are not segments, and why."""

    @property
    def bytes_total(self) -> int:
        """Total length of all segments."""
        return len(self.segments) * self.segment_size

    def segment_at(self, pos: int) -> RawSegment | None:
        """Return the segment that holds a position; None if there is none."""
        for segment in self.segments:
            if segment.start <= pos < segment.end:
                return segment
        return None

    def next_segment(self, pos: int) -> RawSegment | None:
        """Return the first segment that ends after a position; None if there is none."""
        return next((segment for segment in self.segments if segment.end > pos), None)

    def gaps(self) -> Iterator[tuple[RawSegment, RawSegment]]:
        """Yield adjacent segments with a gap between them."""
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            if before.end != after.start:
                yield before, after


def list_folder(folder: Path) -> LogFolder:
    """List a folder; the most common file length is taken as the segment size."""
    found: list[tuple[Path, int, int]] = []
    strange: list[tuple[str, str]] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            found.append((path, disk.start_offset(path.name), path.stat().st_size))
        except ValueError as error:
            strange.append((path.name, str(error)))
    sizes = Counter(size for path, _, size in found if size and path.is_file())
    usual = sizes.most_common(1)[0][0] if sizes else 0
    segments = []
    for path, start, size in found:
        if size != usual or not path.is_file():
            strange.append((path.name, f"it has {size} bytes, the others have {usual}"))
        elif start % usual:
            strange.append((path.name, f"its name is not a multiple of its length, {usual}"))
        else:
            segments.append(RawSegment(path, start, size))
    return LogFolder(folder, tuple(segments), usual, tuple(strange))


def _read(fd: int, at: int, size: int) -> bytes:
    try:
        return _pread(fd, at, size)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    parts: list[bytes] = []
    end = at + size
    while at < end:
        step = min(end, at - at % PAGE_BYTES + PAGE_BYTES) - at
        try:
            parts.append(_pread(fd, at, step))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            break
        at += step
    return b"".join(parts)


def _pread(fd: int, at: int, size: int) -> bytes:
    """Read `size` bytes, fewer at the end of the file; one pread returns at most 2 GiB."""
    parts: list[bytes] = []
    while size > 0:
        part = os.pread(fd, size, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
        size -= len(part)
    return b"".join(parts)
