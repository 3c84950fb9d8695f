"""A lock that admits one process per store; Java has none, and two would overwrite each other."""

import fcntl
import os
from pathlib import Path
from typing import Final

from dledger_node.errors import StoreInUseError

FILE_NAME: Final = "lock"


class FolderLock:
    """An advisory lock on a folder, released by `close` or when the process ends."""

    def __init__(self, folder: Path) -> None:
        """Take the lock without waiting. Raises StoreInUseError if another process holds it."""
        path = folder / FILE_NAME
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip() or "another process"
            os.close(self._fd)
            raise StoreInUseError(
                f"{folder} is in use by {holder}; stop that process, or give this member its own "
                "folder"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"process {os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Release the lock; later calls do nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
