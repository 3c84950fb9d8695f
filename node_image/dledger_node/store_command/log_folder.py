"""The segments of one kind as bytes, some of which may be missing or unreadable.

Read with `pread`, never through a mapping: a sector that the disk cannot give would end this
process with SIGBUS.
"""

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
class Segment:
    """One file of the expected length."""

    path: Path
    start: int
    size: int

    @property
    def end(self) -> int:
        """Position behind its last byte."""
        return self.start + self.size

    @property
    def label(self) -> str:
        """Folder and name."""
        return f"{self.path.parent.name}/{self.path.name}"

    def read(self, at: int, size: int) -> bytes:
        """Bytes from byte `at` on: fewer at the end of the file and before an unreadable page."""
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
    """The segments of `data/` or `index/`, in sequence; gaps are possible."""

    folder: Path
    segments: tuple[Segment, ...]
    segment_size: int
    """0 when there is no segment."""
    strange: tuple[tuple[str, str], ...]
    """Names that are no segment's, or not of the length of most, and why."""

    @property
    def bytes_total(self) -> int:
        """Length of all segments."""
        return len(self.segments) * self.segment_size

    def segment_at(self, pos: int) -> Segment | None:
        """The segment that holds this position."""
        for segment in self.segments:
            if segment.start <= pos < segment.end:
                return segment
        return None

    def next_segment(self, pos: int) -> Segment | None:
        """The first segment that ends behind this position."""
        return next((segment for segment in self.segments if segment.end > pos), None)

    def gaps(self) -> Iterator[tuple[Segment, Segment]]:
        """Neighbours that do not follow one another."""
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            if before.end != after.start:
                yield before, after


def list_folder(folder: Path) -> LogFolder:
    """Look at the names and lengths in a folder; the length of most files is taken as the right."""
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
            strange.append((path.name, f"its name is no multiple of its length, {usual}"))
        else:
            segments.append(Segment(path, start, size))
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
    """As many bytes as there are; one call gives at most 2 GiB."""
    parts: list[bytes] = []
    while size > 0:
        part = os.pread(fd, size, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
        size -= len(part)
    return b"".join(parts)
