"""Reads of what is in the page cache, which never wait for the disk."""

import errno
import os
from typing import Final

_NOT_CACHED: Final = (errno.EAGAIN, errno.EOPNOTSUPP)


def read_cached(fd: int, buffer: bytearray | memoryview, at: int) -> int:
    """Read from byte `at` on as much as is in the page cache and fits; return how much that is.

    It is 0 on file systems that cannot tell. Raises OSError.
    """
    try:
        return os.preadv(fd, [buffer], at, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno in _NOT_CACHED:
            return 0
        raise
