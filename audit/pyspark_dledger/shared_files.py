"""Small files, one for a member, that the processes of a machine share while they read it.

The files are in one folder. An environment variable has a bound and this folder, as BOUND:FOLDER,
because Spark's workers inherit the environment.
"""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def shared(variable: str, bound: float, prefix: str) -> Iterator[None]:
    """Set a variable, with a new folder, within the block and for processes started there."""
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        os.environ[variable] = f"{bound}:{folder}"
        try:
            yield
        finally:
            del os.environ[variable]


def bound_of(variable: str, place: str) -> tuple[str, Path] | None:
    """Return the bound of a variable, and the file of a member; None without the variable."""
    bound, colon, folder = os.environ.get(variable, "").partition(":")
    if not colon:
        return None
    return bound, Path(folder) / hashlib.sha256(place.encode()).hexdigest()[:32]


@contextmanager
def locked(file: Path) -> Iterator[int]:
    """Open the file and lock it against other processes; yield its descriptor."""
    descriptor = _open(file)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _open(file: Path) -> int:
    """Open the file. Before the first read, its folder exists only on the driver's machine."""
    flags = os.O_RDWR | os.O_CREAT
    try:
        return os.open(file, flags, 0o600)
    except FileNotFoundError:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(file, flags, 0o600)
