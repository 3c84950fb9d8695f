"""The segments of a damaged log, read as if each byte that cannot be read were zero.

A missing file, a file that was cut short and an unreadable sector all read as zeros. No entry
begins with a zero, so a walk over the entries stops right there. A patch replaces one range of
positions: with it, the log is read as it will be once the range is mended. Nothing is written.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from dledger_formats.log import disk
from dledger_node.errors import StoreDamagedError
from dledger_node.shortages import is_passing
from dledger_node.store.segments.open_files import OpenFiles
from dledger_node.store.segments.segment import Segment
from dledger_node.store.segments.segment_list import SegmentList

OPEN_FILES_MAX: Final = 16
_BLOCK_BYTES: Final = 4096


class Patch(NamedTuple):
    """A range of positions, and the function that reads it from elsewhere."""

    start: int
    end: int
    read: Callable[[int, int], bytes]
    """Return the bytes between two positions."""


class PatchedSegments(SegmentList):
    """Segments from position `start` to `end`, whether their files exist or not."""

    def __init__(
        self, folder: Path, file_size: int, start: int, end: int, patch: Patch | None = None
    ) -> None:
        super().__init__(folder, file_size, [], OPEN_FILES_MAX)
        self.files = [
            _PatchedSegment(folder / disk.file_name(at), at, file_size, self._open_files, patch)
            for at in range(start, end, file_size)
        ]

    def forget_pages(self, pos: int, end: int) -> None:
        """Drop the cached pages of a range, so that the disk is read. Dirty pages stay."""
        for file in self.files_between(pos, end):
            at, size = max(0, pos - file.start), min(self.file_size, end - file.start)
            with contextlib.suppress(OSError):
                fd = os.open(file.path, os.O_RDONLY)
                try:
                    os.posix_fadvise(fd, at, size - at, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(fd)


def absent(segments: SegmentList, pos: int) -> range:
    """Return the positions from `pos` to the end of its file, if the disk has none of them."""
    file = segments.file_at(pos)
    try:
        present_bytes = file.path.stat().st_size
    except OSError:
        present_bytes = 0
    return range(pos, file.end if pos - file.start >= present_bytes else pos)


class _PatchedSegment(Segment):
    """One file; `read` fails only for lack of descriptors or memory."""

    __slots__ = ("_patch",)

    def __init__(
        self, path: Path, start: int, size: int, open_files: OpenFiles, patch: Patch | None
    ) -> None:
        super().__init__(path, start, size, open_files)
        self._patch = patch

    def read(self, at: int, size: int) -> bytes:
        """Read bytes; zeros in place of those that the disk cannot read.

        Raises StoreDamagedError if the process lacks descriptors or memory (`is_passing`).
        """
        size = min(size, self.size - at)
        patch, begin, end = self._patch, self.start + at, self.start + at + size
        if patch is None or patch.end <= begin or end <= patch.start:
            return self._read_soft(at, size)
        low, high = max(begin, patch.start), min(end, patch.end)
        before = self._read_soft(at, low - begin)
        return before + patch.read(low, high) + self._read_soft(at + high - begin, end - high)

    def _read_soft(self, at: int, size: int) -> bytes:
        if size == 0:
            return b""
        try:
            return super().read(at, size)
        except StoreDamagedError as error:
            if is_passing(error):
                raise
            if size <= _BLOCK_BYTES and at // _BLOCK_BYTES == (at + size - 1) // _BLOCK_BYTES:
                return self._read_short(at, size)
        end, parts = at + size, list[bytes]()
        while at < end:
            stop = min(end, (at // _BLOCK_BYTES + 1) * _BLOCK_BYTES)
            parts.append(self._read_soft(at, stop - at))
            at = stop
        return b"".join(parts)

    def _read_short(self, at: int, size: int) -> bytes:
        """Read the bytes before the end of a file that was cut short within this block."""
        try:
            present = self.path.stat().st_size - at
            data = super().read(at, present) if 0 < present < size else b""
        except (StoreDamagedError, OSError) as error:
            if is_passing(error):
                raise
            data = b""
        return data.ljust(size, b"\0")
