"""Removes the units of messages that the log no longer has. All functions block.

The last one of them stays in each queue: it shows where the messages begin that the log has
(`KeptMessages`), and a queue is never without a file. The files before it are deleted, and the
space before it in its own file is given back to the file system, which leaves a hole. A reader
takes what is gone for units that were never built.

A unit is a hint. A damaged one may let units go whose messages the log still has; whoever misses
them has all queues built again.
"""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from dledger_broker.queues.kept_messages import first_number
from dledger_formats.rocketmq.consume_queue import UNIT_BYTES

Release: TypeAlias = Callable[[Path], None]
"""Closes a file that will be deleted, or is."""

SMALL_BYTES: Final = 64 * 1024
"""Less space than this is not given back, and a queue whose only file takes so little is not read:
thousands of queues may have few messages.
"""
_BLOCK_BYTES: Final = 4096
_STATED_BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`."""
_OFFSET_BYTES: Final = 8
_NAME_DIGITS: Final = 20
_KEEP_SIZE_AND_PUNCH_HOLE: Final = 1 | 2


class _File(NamedTuple):
    """A file of a queue."""

    path: Path
    size: int
    disk_bytes: int
    """The bytes that it takes on disk: none for a hole."""


def trim(folder: Path, begin_pos: int, release: Release) -> int:
    """Remove the units of a queue whose messages lie before a position of the log; return the bytes
    that its files still take on disk. Raises OSError.
    """
    files = _files_of(folder)
    disk_bytes = sum(file.disk_bytes for file in files)
    if begin_pos == 0 or (len(files) <= 1 and disk_bytes <= SMALL_BYTES):
        return disk_bytes
    for number, file in reversed(list(enumerate(files))):
        last = _last_removed(file, begin_pos)
        if last is not None:
            for gone in files[:number]:
                release(gone.path)
                gone.path.unlink()
                release(gone.path)  # a thread may have opened it again before it was gone
            _make_hole(file, last * UNIT_BYTES)
            return sum(each.disk_bytes for each in _files_of(folder))
    return disk_bytes


def _files_of(folder: Path) -> list[_File]:
    """Return the files of a queue, in the order of their units."""
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(entry.name) == _NAME_DIGITS and entry.name.isdigit():
                stat = entry.stat()
                disk_bytes = stat.st_blocks * _STATED_BLOCK_BYTES
                files.append(_File(Path(entry.path), stat.st_size, disk_bytes))
    return sorted(files)


def _last_removed(file: _File, begin_pos: int) -> int | None:
    """Return the number of the file's last unit whose message is removed; None if it has none."""
    fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:

        def physical_offset(number: int) -> int:
            raw = os.pread(fd, _OFFSET_BYTES, number * UNIT_BYTES)
            return int.from_bytes(raw, "big", signed=True)

        if physical_offset(0) >= begin_pos:
            return None
        count = file.size // UNIT_BYTES
        first_kept = first_number(count, lambda number: physical_offset(number) >= begin_pos)
        is_removed = first_kept > 0 and physical_offset(first_kept - 1) > 0  # else it is a hole
        return first_kept - 1 if is_removed else None
    finally:
        os.close(fd)


def _make_hole(file: _File, end: int) -> None:
    """Give the whole blocks before a byte of a file back to the file system, if it can do that."""
    size = end - end % _BLOCK_BYTES
    if file.disk_bytes - (file.size - size) <= SMALL_BYTES:
        return  # most of it is a hole
    fallocate = getattr(ctypes.CDLL(None), "fallocate", None)  # Python has no wrapper for it
    if fallocate is not None:
        fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fallocate(fd, _KEEP_SIZE_AND_PUNCH_HOLE, ctypes.c_int64(0), ctypes.c_int64(size))
        finally:
            os.close(fd)
