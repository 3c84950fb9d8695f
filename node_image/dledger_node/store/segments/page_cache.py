"""Reads of what is in the page cache, which never wait for the disk."""

import errno
import os
from typing import Final

_NOT_CACHED: Final = (errno.EAGAIN, errno.EOPNOTSUPP)


def read_cached(fd: int, size: int, at: int) -> bytearray | None:
    """Read up to `size` bytes from byte `at` on, as far as they are in the page cache.

    None if the first one is not, or on file systems that cannot tell. Raises OSError.
    """
    data = bytearray(size)
    try:
        count = os.preadv(fd, [data], at, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno in _NOT_CACHED:
            return None
        raise
    if count < size:
        del data[count:]
    return data
