"""File descriptors of segments: opened when they are needed, and never too many at once.

A log of small segments has more of them than a process may have open files. One that is let go of
while another thread still uses it stays open until that thread is done.
"""

import os
import threading
from collections import deque
from pathlib import Path
from typing import Final

OPEN_FILES_MAX: Final = 128


class Descriptor:
    """An open file; closed with the last reference to it."""

    __slots__ = ("fd",)

    def __init__(self, path: Path) -> None:
        self.fd = -1
        self.fd = os.open(path, os.O_RDWR)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class Holder:
    """A segment's place for its descriptor; whoever uses it takes a reference first."""

    __slots__ = ("descriptor",)

    def __init__(self) -> None:
        self.descriptor: Descriptor | None = None


class OpenFiles:
    """The descriptors of one folder's segments; the one opened first is let go of first."""

    def __init__(self, limit: int = OPEN_FILES_MAX) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._holders: deque[Holder] = deque()

    def open(self, holder: Holder, path: Path) -> Descriptor:
        """Open a file for a holder that has none; OSError."""
        with self._lock:
            if holder.descriptor is None:
                holder.descriptor = Descriptor(path)
                self._holders.append(holder)
            descriptor = holder.descriptor
            while len(self._holders) > self._limit:
                self._holders.popleft().descriptor = None
            return descriptor

    def let_go(self, holder: Holder) -> None:
        """Close a holder's descriptor, once nobody uses it."""
        with self._lock:
            if holder.descriptor is not None:
                holder.descriptor = None
                self._holders.remove(holder)
