"""Files of consume queues that are open for reading: opening one takes longer than reading it.

May be used in any thread. A file stays open while it is read, even if it is released.
"""

import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.open_file import OpenFile

READ_FILES_MAX: Final = 256


class ReadFiles:
    """The files that were read last, by their queue and the offset of their first byte."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held for a moment only: no file is opened or closed under it."""
        self._files: OrderedDict[tuple[QueueId, int], OpenFile] = OrderedDict()
        self._forgotten = 0
        """How often files were forgotten."""

    def find(self, queue: QueueId, begin: int) -> OpenFile | None:
        """Return a file if it is open; does not block."""
        with self._lock:
            file = self._files.get((queue, begin))
            if file is not None:
                self._files.move_to_end((queue, begin))
            return file

    def open(self, queue: QueueId, begin: int, path: Path) -> OpenFile:
        """Open a file, and keep it open unless files are forgotten meanwhile. Raises OSError."""
        forgotten = self._forgotten
        file, released = OpenFile(path, os.O_RDONLY), None
        with self._lock:
            if forgotten == self._forgotten:
                self._files[queue, begin] = file
                if len(self._files) > READ_FILES_MAX:
                    _, released = self._files.popitem(last=False)
        del released  # closed here, where the lock is free
        return file

    def forget(self, folder: Path) -> None:
        """Release all files below a folder, and keep none that is being opened now. Call it before
        the files are deleted, so that nothing keeps their space, and afterwards.
        """
        with self._lock:
            self._forgotten += 1
            below = [key for key, file in self._files.items() if folder in file.path.parents]
            released = [self._files.pop(key) for key in below]
        released.clear()

    def forget_file(self, queue: QueueId, begin: int) -> None:
        """Release one file, as `forget` does."""
        with self._lock:
            self._forgotten += 1
            released = self._files.pop((queue, begin), None)
        del released

    def close(self) -> None:
        """Release all files."""
        with self._lock:
            self._forgotten += 1
            released, self._files = self._files, OrderedDict()
        released.clear()
