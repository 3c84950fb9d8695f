"""Small files, one for a member, that the processes of a machine share while they read it."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def path_of(folder: Path, place: str) -> Path:
    """Return the file of a member in a folder."""
    return folder / hashlib.sha256(place.encode()).hexdigest()[:32]


@contextmanager
def locked(file: Path) -> Iterator[int]:
    """Open the file, alone among the processes; yield its descriptor."""
    descriptor = _open(file)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _open(file: Path) -> int:
    """Open the file. Only the driver's machine has its folder before the first read."""
    flags = os.O_RDWR | os.O_CREAT
    try:
        return os.open(file, flags, 0o600)
    except FileNotFoundError:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(file, flags, 0o600)
