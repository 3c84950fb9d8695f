"""One process per store: two would write over each other, and Java has no such guard."""

import fcntl
import os
from pathlib import Path
from typing import Final

from dledger_node.errors import StoreInUseError

FILE_NAME: Final = "lock"


class FolderLock:
    """An advisory lock on a folder, given back when this is closed or the process ends."""

    def __init__(self, folder: Path) -> None:
        """Take the lock, at once or not at all: StoreInUseError."""
        path = folder / FILE_NAME
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip() or "another process"
            os.close(self._fd)
            raise StoreInUseError(
                f"{folder} is in use by {holder}; stop that one, or give this member a folder of "
                "its own"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"process {os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Give the lock back; once, since the number of its file may be another's afterwards."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
