"""A file that is closed when it is no longer used."""

import os
from pathlib import Path


class OpenFile:
    """An open file; closed when the last reference to it is dropped."""

    __slots__ = ("fd", "path")

    def __init__(self, path: Path, flags: int) -> None:
        """`flags` are those of `os.open`. Raises OSError."""
        self.fd = -1
        self.path = path
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
