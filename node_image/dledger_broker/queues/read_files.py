"""Files of consume queues that are open for reading: to open one takes longer than to read it.

May be used in any thread. A file stays open while somebody reads it, also if it is released.
"""

import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

from dledger_broker.queues.builder import QueueId

READ_FILES_MAX: Final = 256


class ReadFile:
    """An open file; closed when the last reference to it is dropped."""

    __slots__ = ("fd",)

    def __init__(self, path: Path) -> None:
        self.fd = -1
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    @property
    def is_deleted(self) -> bool:
        """Whether the file has no name any more; another one may have it."""
        return os.fstat(self.fd).st_nlink == 0


class ReadFiles:
    """The files that were read last, by their queue and the offset of their first byte."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[QueueId, int], ReadFile] = OrderedDict()

    def find(self, queue: QueueId, begin: int) -> ReadFile | None:
        """Return a file if it is open, and was not deleted. Raises OSError."""
        key = queue, begin
        with self._lock:
            file = self._files.get(key)
            if file is not None:
                self._files.move_to_end(key)
        if file is None or not file.is_deleted:
            return file
        with self._lock:
            if self._files.get(key) is file:
                del self._files[key]
        return None

    def open(self, queue: QueueId, begin: int, path: Path) -> ReadFile:
        """Open a file; blocks. Raises OSError."""
        file = ReadFile(path)
        with self._lock:
            self._files[queue, begin] = file
            if len(self._files) > READ_FILES_MAX:
                self._files.popitem(last=False)
        return file

    def close(self) -> None:
        """Release all files."""
        with self._lock:
            self._files.clear()
