"""One file of the log, mapped into memory as a whole.

A segment is allocated on disk before its first byte is written: writing through a mapping has no
way to report a full disk but SIGBUS, which kills the process. A sector that cannot be read does
the same; the process is started again and, where recovery reads it, dies again.

Linux writes back pages that were changed through a shared mapping when `fdatasync` is called on the
file, and waits for them. So one call makes everything durable that was copied in before.
"""

import contextlib
import errno
import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from dledger_node.errors import StoreError, StoreFullError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class MmapFile:
    """A segment of fixed size; `start` is the position of its first byte in the log.

    Any thread may read `view` and call `sync`; the rest is for the thread that writes.
    """

    __slots__ = ("_fd", "_fd_lock", "_map", "name_is_durable", "path", "size", "start", "view")

    def __init__(self, path: Path, start: int) -> None:
        self.path = path
        self.start = start
        self._fd_lock = threading.Lock()
        self._fd = os.open(path, os.O_RDWR)
        self.size = os.fstat(self._fd).st_size
        self._map = mmap.mmap(self._fd, self.size)
        self.view = memoryview(self._map)
        self.name_is_durable = True
        """Whether the folder was synced since the file got its name."""

    @classmethod
    def create(cls, path: Path, size: int) -> Self:
        """Make a file of zeros that no full disk can hit later, durable but for its name.

        StoreFullError when there is no room; nothing is left behind.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
        try:
            os.posix_fallocate(fd, 0, size)
            os.fsync(fd)
        except OSError as error:
            path.unlink()
            raise _allocation_error(path, size, error) from error
        finally:
            os.close(fd)
        return cls(path, -1)

    @property
    def end(self) -> int:
        """Position in the log behind this file's last byte."""
        return self.start + self.size

    def become(self, path: Path, start: int) -> None:
        """Take a place in the log; the name is durable once the folder is synced."""
        os.rename(self.path, path)
        self.path, self.start, self.name_is_durable = path, start, False

    def allocate(self) -> None:
        """Give every byte its place on disk: Java leaves holes. StoreFullError."""
        if os.fstat(self._fd).st_blocks * 512 >= self.size:
            return
        try:
            os.posix_fallocate(self._fd, 0, self.size)
        except OSError as error:
            raise _allocation_error(self.path, self.size, error) from error

    def data_ranges(self, at: int) -> Iterator[tuple[int, int]]:
        """Parts from byte `at` on that may hold anything but zeros, as the file system knows."""
        while at < self.size:
            try:
                begin = os.lseek(self._fd, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # no data behind `at`
                    return
                raise
            at = os.lseek(self._fd, begin, os.SEEK_HOLE)
            yield begin, at

    def sync(self) -> None:
        """Make what the file holds durable; blocks, and does nothing once the file is closed.

        A StoreError is final: the kernel may have dropped what it could not write, and a second
        call would succeed all the same.
        """
        with self._fd_lock:
            if self._fd < 0:
                return
            with _final_errors(self.path):
                os.fdatasync(self._fd)
                _check_that_the_file_system_lives(self._fd)

    def close(self) -> None:
        """Let go of the file. Views of it that are still in use stay readable."""
        with self._fd_lock:
            os.close(self._fd)
            self._fd = -1
        self.view.release()
        with contextlib.suppress(BufferError):  # a view is still in use, and unmaps when it goes
            self._map.close()

    def remove(self) -> None:
        """Delete the file and let go of it."""
        self.path.unlink()
        self.close()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. A StoreError is final.

    XFS says yes to an fsync of a folder when it has shut itself down, as it does after an error of
    its log, and the names are lost; reading the folder then fails.
    """
    with _final_errors(folder):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
            os.listdir(fd)
        finally:
            os.close(fd)


def _check_that_the_file_system_lives(fd: int) -> None:
    """OSError when the file system of an open file has shut itself down.

    On ext4 an fdatasync that was under way then may say yes: the data is written, but the extent
    that was allocated ahead of it stays marked as unwritten, and reads as zeros after a mount.
    Opening a file fails from then on.
    """
    os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY))


@contextlib.contextmanager
def _final_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path}: it could not be made durable ({error}); what was written since the last "
            "flush may be lost. Stop this member and check its disk"
        ) from error


def _allocation_error(path: Path, size: int, error: OSError) -> StoreError:
    if error.errno in _NO_ROOM:
        return StoreFullError(
            f"{path}: no room for a segment of {size} bytes ({error.strerror}); nothing was "
            "written. Free space or enlarge the volume"
        )
    return StoreError(f"{path}: {size} bytes could not be allocated: {error}")
