"""File descriptors of segments: opened on demand, and bounded in number.

A log of small segments has more of them than a process may have open files. A descriptor that is
released while another thread uses it stays open until that thread is done.
"""

import os
import threading
from collections import deque
from pathlib import Path
from typing import Final

OPEN_FILES_MAX: Final = 128


class Descriptor:
    """An open file; closed when the last reference to it is dropped."""

    __slots__ = ("fd",)

    def __init__(self, path: Path) -> None:
        self.fd = -1
        self.fd = os.open(path, os.O_RDWR)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class Holder:
    """The slot of one segment for its descriptor; a user takes a reference before using it."""

    __slots__ = ("descriptor",)

    def __init__(self) -> None:
        self.descriptor: Descriptor | None = None


class OpenFiles:
    """The descriptors of one folder's segments; the one opened first is released first."""

    def __init__(self, limit: int = OPEN_FILES_MAX) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._holders: deque[Holder] = deque()

    def open(self, holder: Holder, path: Path) -> Descriptor:
        """Open a file for a holder, unless it has one. Raises OSError."""
        with self._lock:
            if holder.descriptor is None:
                holder.descriptor = Descriptor(path)
                self._holders.append(holder)
            descriptor = holder.descriptor
            while len(self._holders) > self._limit:
                self._holders.popleft().descriptor = None
            return descriptor

    def release(self, holder: Holder) -> None:
        """Close a holder's descriptor once no thread uses it."""
        with self._lock:
            if holder.descriptor is not None:
                holder.descriptor = None
                self._holders.remove(holder)
