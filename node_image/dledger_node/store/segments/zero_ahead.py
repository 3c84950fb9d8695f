"""Zeros written ahead of the end of the log, so that a flush changes data and nothing else.

A segment is allocated before it is used, and the file system marks its blocks as never written. The
first flush of each takes the mark off, which costs a commit of the journal besides the data. Where
zeros were written before, there is no mark, and the pages that an append fills are in memory.

No append is ever overwritten, by construction. Appends lie below `_fence` and zeros above it; it
never goes back, and moves under a lock that each write of zeros holds. An append takes the lock
only when it reaches the fence, and waits then for one piece that the kernel copies at most; the
kernel, which lets in one writer of a file at a time, would make it wait for that in any case.

Zeros are written a bounded distance ahead: a new group does not write a segment of 1 GiB, and a
page that has left memory again must be read before a part of it can be written. They are not synced
here: the kernel tells each failure to sync once, and it is for the flush to hear of it.
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
"""What is written at once. The kernel keeps longer pieces in larger pages, in which short appends
cost more.
"""
RUN_PIECES: Final = 16
"""What is handed to the disk at once, and how far behind its end an append sets the fence: 1 MiB.
A flush that comes then waits for it.
"""
AHEAD_PIECES: Final = 128
"""How far behind the fence zeros are kept: 8 MiB, a quarter of a second at 30 MiB/s."""
SEGMENT_PIECES_MIN: Final = 512
"""In short segments the pieces are shorter, so that the same happens there."""
OVERWRITING: Final = ("ext4", "tmpfs", "xfs")
"""File systems that write into the blocks that a file has. Others take new ones for what is written
a second time, and an append could find none.
"""
_SYNC_FILE_RANGE_WRITE: Final = 2


class ZeroAhead:
    """Writes zeros behind the end of one log; `enter` is for the thread that appends."""

    def __init__(self, data: SegmentList, end_pos: int) -> None:
        """Nothing but zeros lies behind `end_pos`, where the log ends."""
        self._data = data
        self._zeros = bytes(max(1, min(PIECE_BYTES, data.file_size // SEGMENT_PIECES_MIN)))
        self._lock = threading.Lock()
        self._fence = end_pos
        self._zeroed_pos = 0  # no zeros are written below: it is done, or an append was faster
        self._overwrites = overwrites(data.folder)

    def enter(self, end_pos: int) -> None:
        """Let an append write below `end_pos`; called before it does."""
        if end_pos > self._fence:
            with self._lock:
                self._fence = end_pos + RUN_PIECES * len(self._zeros)

    @property
    def is_due(self) -> bool:
        """Whether `run` has enough to write, or the rest of a segment."""
        file = self._last_file()
        if file is None:
            return False
        goal_pos = self._goal_pos(file)
        missing_bytes = goal_pos - self._next_pos(file)
        return missing_bytes >= (1 if goal_pos == file.end else RUN_PIECES * len(self._zeros))

    @property
    def is_outrun(self) -> bool:
        """Whether there are no zeros ahead: appends were faster, or the log was just opened."""
        return self._zeroed_pos <= self._fence

    def run(self) -> None:
        """Write some zeros and have the disk begin with them; blocks, in one thread at a time.

        OSError when it takes none, which harms nothing: the blocks are allocated.
        """
        file = self._last_file()
        if file is None:
            return
        with contextlib.suppress(FileNotFoundError), _opened(file.path) as fd:  # or it was cut
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
        """The segment in which the log ends; None when there is none, or zeros are no use."""
        files = self._data.files[-1:] if self._overwrites else []
        return files[0] if files else None

    def _next_pos(self, file: Segment) -> int:
        """Where the next piece begins; the pieces of a segment lie side by side."""
        at = max(self._zeroed_pos, self._fence) - file.start
        return file.start + at + -at % len(self._zeros)

    def _goal_pos(self, file: Segment) -> int:
        """Where the zeros should end."""
        return min(file.end, self._fence + AHEAD_PIECES * len(self._zeros))


def overwrites(folder: Path) -> bool:
    """Whether files in this folder keep the blocks that they have when they are written again."""
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
    """Have the kernel hand a part of a file to the disk now, and not all at once with a flush.

    It waits for nothing, and a failure is kept for the flush. Python has no name for this call.
    """
    if size > 0:
        ctypes.CDLL(None).sync_file_range(
            fd, ctypes.c_int64(start), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE
        )
