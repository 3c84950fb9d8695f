"""The lock of a local folder that holds an archive or a history.

A run that is given a path locks the file `lock`. A run that is given a URI of the same folder keeps
the file `lock.hadoop` (`renewed_lock`). Each takes its own lock first, and then looks for the
other's. So of two runs at the same time, at most one goes on.
"""

import fcntl
import os
from pathlib import Path

from dledger_audit.places import HADOOP_LOCK_FILE, LOCK_FILE


class FolderInUseError(Exception):
    """Another run holds the folder; the message says what to do."""


def open_lock(folder: Path) -> int:
    """Open the file to lock, and create it if it is missing. Raises OSError."""
    return os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)


def lock(fd: int, folder: Path, *, holder: str = "another run", cure: str) -> None:
    """Lock the file of `open_lock` until it is closed.

    `holder` names who may hold the folder, and `cure` says what to do about that. Raises
    FolderInUseError, and OSError if the file system has no locks.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FolderInUseError(f"{folder} is in use by {holder}; {cure}") from error
    hadoop_lock = folder / HADOOP_LOCK_FILE
    if hadoop_lock.exists():
        raise FolderInUseError(
            f"{folder} is in use by {holder}, or one was killed: {cure}; if none runs, remove "
            f"{hadoop_lock}"
        )


def is_locked(folder: Path) -> bool:
    """Return whether a run that was given a path holds the folder. Raises OSError."""
    try:
        fd = os.open(folder / LOCK_FILE, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
