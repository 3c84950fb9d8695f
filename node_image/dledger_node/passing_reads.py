"""Reads that leave the page cache as it was, for auditors, who read a whole log once.

Pages that were not cached before a read are dropped after it, so they take the place of nothing
that clients read.
"""

import ctypes
import mmap
import os
from collections.abc import Iterator
from itertools import groupby
from typing import Final

PAGE_BYTES: Final = mmap.PAGESIZE
_LIBC: Final = ctypes.CDLL(None)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_LIBC.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
_MAP_FAILED: Final = ctypes.c_void_p(-1).value
_PROT_NONE: Final = 0
_RESIDENT: Final = 1
"""The bit of a page in the answer of `mincore`."""


def read(fd: int, start: int, size: int) -> bytes:
    """Read up to so many bytes at `start`; blocks. The descriptor must be used for nothing else:
    the kernel reads nothing ahead on it any more, since that would be in the page cache, too.
    """
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    first = start - start % PAGE_BYTES
    absent = absent_runs(fd, first, start + size - first)
    try:
        return os.pread(fd, size, start)
    finally:
        # A page that somebody else has read in the meantime goes as well, and is read again.
        for at, length in absent:
            os.posix_fadvise(fd, at, length, os.POSIX_FADV_DONTNEED)


def absent_runs(fd: int, at: int, size: int) -> list[tuple[int, int]]:
    """Return where the page cache has nothing of a file, as positions and lengths. `at` begins a
    page. Empty if the kernel does not tell, for example because the file belongs to somebody else.

    The file is mapped without any access to it, so a disk that fails does not end the process.
    """
    pages = -(-size // PAGE_BYTES)
    if not pages:
        return []
    address = _LIBC.mmap(None, size, _PROT_NONE, mmap.MAP_SHARED, fd, at)
    if address == _MAP_FAILED:
        return []
    told = ctypes.create_string_buffer(pages)
    try:
        if _LIBC.mincore(address, size, told):
            return []
    finally:
        _LIBC.munmap(address, size)
    return list(_runs(told.raw, at))


def _runs(told: bytes, at: int) -> Iterator[tuple[int, int]]:
    for is_resident, group in groupby(told, lambda page: page & _RESIDENT):
        length = len(list(group)) * PAGE_BYTES
        if not is_resident:
            yield at, length
        at += length
