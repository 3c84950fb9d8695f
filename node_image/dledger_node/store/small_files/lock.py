"""A lock that admits one process per store; Java has none, and two would overwrite each other."""

import fcntl
import os
from pathlib import Path
from typing import Final

from dledger_formats.lock_holder import holder_of
from dledger_node.closing import closed_on_error
from dledger_node.errors import StoreInUseError
from dledger_node.store.segments.segment import NO_ROOM, disk_error

FILE_NAME: Final = "lock"


class FolderLock:
    """An advisory lock on a folder, released by `close` or when the process ends."""

    def __init__(self, folder: Path) -> None:
        """Take the lock without waiting. Raises StoreInUseError if another process holds it.

        Raises StoreError if the disk fails, StoreFullError if it has no room to create the file,
        and PermissionError.
        """
        path = folder / FILE_NAME
        self._fd = -1
        # A lock that stayed would refuse this process's own next attempt.
        with closed_on_error(self.close):
            try:
                self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
                self._take(folder)
            except PermissionError:  # no fault of the disk: the commands name another user
                raise
            except OSError as error:
                raise disk_error(f"cannot lock {folder}", error) from error
            self._name_holder(path)

    def close(self) -> None:
        """Release the lock; later calls do nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take(self, folder: Path) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._holder(folder / FILE_NAME)
            raise StoreInUseError(
                f"{folder} is in use by {holder}; stop that process, or give this member its own "
                "folder"
            ) from None

    def _holder(self, path: Path) -> str:
        """Name the process that holds the lock: an export may, which does not write its name."""
        if (pid := holder_of(path)) is not None:
            return f"process {pid}"
        named = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
        return named or "another process"

    def _name_holder(self, path: Path) -> None:
        """Write which process holds the lock, unless the volume is full: a store opens on it."""
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"process {os.getpid()}\n".encode(), 0)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise disk_error(f"cannot write {path}", error) from error
