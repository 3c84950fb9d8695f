"""Reads small files that a program needs, and never waits for whoever may write one."""

import errno
import os
import stat
from pathlib import Path


def read_start(path: str | Path, bytes_max: int) -> bytes:
    """Return the first bytes of a file. Raises OSError, also for a named pipe.

    The reader of a named pipe may wait forever for its writer, and no second reader gets the same.
    """
    with open(path, "rb", opener=_opened_at_once) as file:
        if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is a named pipe, and a regular file is needed")
        return file.read(bytes_max) or b""  # None: a terminal on which nothing was typed yet


def _opened_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
