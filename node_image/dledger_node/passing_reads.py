"""Reads that leave the page cache as it was, for auditors, which read a whole log once.

Pages that were not cached before a read are dropped after it, so they displace nothing that
clients read.
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
"""The bit in a page's byte from `mincore` that is set if the page is cached."""


def read(fd: int, start: int, size: int) -> bytes:
    """Read up to `size` bytes at `start`; blocks. The descriptor must be used for nothing else:
    the kernel's read-ahead, which would fill the page cache, stays turned off for it.
    """
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    first = start - start % PAGE_BYTES
    absent = absent_runs(fd, first, start + size - first)
    try:
        return os.pread(fd, size, start)
    finally:
        # A page that others have read in the meantime is dropped too, and then read again.
        for at, length in absent:
            os.posix_fadvise(fd, at, length, os.POSIX_FADV_DONTNEED)


def absent_runs(fd: int, at: int, size: int) -> list[tuple[int, int]]:
    """Return the parts of a file that are not in the page cache, as positions and lengths. `at` is
    the start of a page. Empty if the kernel does not say, for example because the file belongs to
    another user.

    The file is mapped without any access to it, so a disk that fails does not end the process.
    """
    pages = -(-size // PAGE_BYTES)
    if not pages:
        return []
    address = _LIBC.mmap(None, size, _PROT_NONE, mmap.MAP_SHARED, fd, at)
    if address == _MAP_FAILED:
        return []
    residency = ctypes.create_string_buffer(pages)
    try:
        if _LIBC.mincore(address, size, residency):
            return []
    finally:
        _LIBC.munmap(address, size)
    return list(_runs(residency.raw, at))


def _runs(residency: bytes, at: int) -> Iterator[tuple[int, int]]:
    for is_resident, group in groupby(residency, lambda page: page & _RESIDENT):
        length = len(list(group)) * PAGE_BYTES
        if not is_resident:
            yield at, length
        at += length
