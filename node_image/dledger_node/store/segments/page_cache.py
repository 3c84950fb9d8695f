"""Reads of what is in the page cache, which never wait for the disk."""

import errno
import os
from typing import Final

_NOT_CACHED: Final = (errno.EAGAIN, errno.EOPNOTSUPP)


def read_cached(fd: int, buffer: bytearray | memoryview, at: int) -> int:
    """Read the bytes from `at` on that the page cache holds and that fit; return their number.

    Returns 0 on file systems that cannot say what is cached. Raises OSError.
    """
    try:
        return os.preadv(fd, [buffer], at, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno in _NOT_CACHED:
            return 0
        raise
