"""Write zeros ahead of the end of the log, so that a flush changes data and no metadata.

A segment is allocated before it is used, and the file system marks its blocks as unwritten. The
first flush of a block clears the mark, which costs a journal commit besides the data. Where zeros
were written before, there is no mark, and the pages that an append fills are in memory.

A write of zeros cannot overwrite an append. Appends lie below `_fence`, zeros above it; the fence
never moves back, and moves only under a lock that each write of zeros holds. An append takes the
lock only when it reaches the fence, and then waits for at most one piece that the kernel copies.
The kernel admits one writer of a file at a time, so the append would wait for that piece anyway.

Zeros are written a bounded distance ahead: a new group must not write a whole segment of 1 GiB, and
a page that was evicted from memory must be read before a part of it can be written. They are not
synced here: the kernel reports a failed sync once, and the flush must receive that report.
"""

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dledger_node.store.segments.segment import Segment
from dledger_node.store.segments.segment_list import SegmentList

PIECE_BYTES: Final = 64 << 10
"""Size of one write. The kernel keeps longer writes in larger pages; short appends to them cost
more.
"""
RUN_PIECES: Final = 16
"""Pieces handed to the disk at once, and distance from the end of an append to the fence: 1 MiB.
A flush that begins then waits for them.
"""
AHEAD_PIECES: Final = 128
"""How far past the fence zeros are written: 8 MiB, a quarter of a second at 30 MiB/s."""
SEGMENT_PIECES_MIN: Final = 512
"""Short segments use shorter pieces, so that they behave the same."""
OVERWRITING: Final = ("ext4", "tmpfs", "xfs")
"""File systems that overwrite the blocks of a file in place. Others allocate new blocks for a
second write, and a full volume could then fail an append.
"""
_SYNC_FILE_RANGE_WRITE: Final = 2


class ZeroAhead:
    """Writes zeros after the end of one log."""

    def __init__(self, data: SegmentList, end_pos: int) -> None:
        """The log ends at `end_pos`; all bytes after it are zero."""
        self._data = data
        self._zeros = bytes(max(1, min(PIECE_BYTES, data.file_size // SEGMENT_PIECES_MIN)))
        self._lock = threading.Lock()
        self._fence = end_pos
        self._zeroed_pos = 0  # zeros end here; none are written below
        self._overwrites = overwrites(data.folder)

    def enter(self, end_pos: int) -> None:
        """Let an append write below `end_pos`; the appending thread calls this before the write."""
        if end_pos > self._fence:
            with self._lock:
                self._fence = end_pos + RUN_PIECES * len(self._zeros)

    @property
    def is_due(self) -> bool:
        """Whether `run` has a full run to write, or the rest of a segment."""
        file = self._last_file()
        if file is None:
            return False
        goal_pos = self._goal_pos(file)
        missing_bytes = goal_pos - self._next_pos(file)
        return missing_bytes >= (1 if goal_pos == file.end else RUN_PIECES * len(self._zeros))

    @property
    def is_outrun(self) -> bool:
        """Whether no zeros are left ahead: appends were faster, or the log was just opened."""
        return self._zeroed_pos <= self._fence

    def run(self) -> None:
        """Write up to `RUN_PIECES` pieces and start their writeback; blocks.

        One thread at a time may call this. An OSError is harmless: the blocks are allocated.
        """
        file = self._last_file()
        if file is None:
            return
        # The file is missing if a truncation has removed it.
        with contextlib.suppress(FileNotFoundError), _opened(file.path) as fd:
            start = self._next_pos(file) - file.start
            for _ in range(RUN_PIECES):
                self._write_piece(file, fd)
            _begin_writing(fd, start, self._zeroed_pos - file.start - start)

    def _write_piece(self, file: Segment, fd: int) -> None:
        with self._lock:
            pos = self._next_pos(file)
            size = min(len(self._zeros), self._goal_pos(file) - pos)
            if size > 0:
                os.pwrite(fd, self._zeros[:size], pos - file.start)
                self._zeroed_pos = pos + size

    def _last_file(self) -> Segment | None:
        """Return the segment in which the log ends; None if there is none or zeros do not help."""
        files = self._data.files[-1:] if self._overwrites else []
        return files[0] if files else None

    def _next_pos(self, file: Segment) -> int:
        """Return where the next piece begins; pieces are aligned within their segment."""
        at = max(self._zeroed_pos, self._fence) - file.start
        return file.start + at + -at % len(self._zeros)

    def _goal_pos(self, file: Segment) -> int:
        """Return where the zeros should end."""
        return min(file.end, self._fence + AHEAD_PIECES * len(self._zeros))


def overwrites(folder: Path) -> bool:
    """Return whether the file system of a folder overwrites blocks in place."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            mount, _, kind = line.partition(" - ")
            if mount.split()[2] == number:
                return kind.split()[0] in OVERWRITING
    return False


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_WRONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def _begin_writing(fd: int, start: int, size: int) -> None:
    """Start writeback of a part of a file, so that the next flush has less to write.

    Does not wait; the next flush reports a failure. Python has no wrapper for this system call.
    """
    if size > 0:
        ctypes.CDLL(None).sync_file_range(
            fd, ctypes.c_int64(start), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE
        )
