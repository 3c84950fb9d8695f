"""One file of the log: read with `pread`, written with `pwrite`, never mapped.

The name is DLedger's, which maps its files. In Python a mapping costs more than it saves: a page
fault stops every thread until the disk answers, a sector that cannot be read or a full disk ends
the process with SIGBUS, and pages that were dirtied through a mapping make `fdatasync` several
times dearer (`bench/store.py` shows it). Here each of those is an error that names the file.

A segment is allocated on disk before its first byte is written, so that a full disk refuses a batch
and never breaks into one.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from dledger_formats.log.disk import Buffer
from dledger_node.errors import Damage, StoreDamagedError, StoreError, StoreFullError
from dledger_node.store.segments.open_files import Descriptor, Holder, OpenFiles

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Segment:
    """A segment of fixed size; `start` is the position of its first byte in the log.

    Any thread may `read` and `sync`; the rest is for the thread that writes.
    """

    __slots__ = (
        "_closed", "_holder", "_open_files", "name_is_durable", "path", "removed", "size", "start",
    )  # fmt: skip

    def __init__(self, path: Path, start: int, size: int, open_files: OpenFiles) -> None:
        self.path = path
        self.start = start
        self.size = size
        self.removed = False
        self._closed = False
        self.name_is_durable = True
        """Whether the folder was synced since the file got its name."""
        self._open_files = open_files
        self._holder = Holder()

    @classmethod
    def create(cls, path: Path, size: int, open_files: OpenFiles) -> Self:
        """Make a file of zeros that no full disk can hit later, durable but for its name.

        StoreFullError when there is no room; nothing is left behind.
        """
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
        except OSError as error:
            raise _allocation_error(path, size, error) from error
        try:
            os.posix_fallocate(fd, 0, size)
            os.fsync(fd)
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink()
            raise _allocation_error(path, size, error) from error
        finally:
            os.close(fd)
        return cls(path, -1, size, open_files)

    @property
    def end(self) -> int:
        """Position in the log behind this file's last byte."""
        return self.start + self.size

    def become(self, path: Path, start: int) -> None:
        """Take a place in the log; the name is durable once the folder is synced."""
        os.rename(self.path, path)
        self.path, self.start, self.name_is_durable = path, start, False

    def read(self, at: int, size: int) -> bytes:
        """Bytes from byte `at` on, fewer at the end of the file.

        StoreDamagedError when the disk cannot give them, or the file was cut short.
        """
        size = min(size, self.size - at)
        try:
            file = self._descriptor()
            data = os.pread(file.fd, size, at)
        except OSError as error:
            raise StoreDamagedError(
                f"{self.path}, byte {at}: {size} bytes cannot be read: {error}", Damage.UNREADABLE
            ) from error
        if len(data) < size:
            raise StoreDamagedError(
                f"{self.path} ends at byte {at + len(data)}; it had {self.size} bytes",
                Damage.UNREADABLE,
            )
        return data

    def write(self, at: int, data: Buffer) -> None:
        """Write all of `data` to byte `at`; it is durable after a `sync` that begins later.

        A StoreError is final: nobody knows how much of it was written.
        """
        try:
            file = self._descriptor()
            written = os.pwrite(file.fd, data, at)
            while written < len(data):
                written += os.pwrite(file.fd, memoryview(data)[written:], at + written)
        except OSError as error:
            raise StoreError(f"{self.path}, byte {at}: it could not be written: {error}") from error

    def allocate(self) -> None:
        """Give every byte its place on disk: Java leaves holes. StoreFullError."""
        if self.path.stat().st_blocks * 512 >= self.size:
            return
        try:
            file = self._descriptor()
            os.posix_fallocate(file.fd, 0, self.size)
        except OSError as error:
            raise _allocation_error(self.path, self.size, error) from error

    def data_ranges(self, at: int) -> list[tuple[int, int]]:
        """Parts from byte `at` on that may hold anything but zeros, as the file system knows.

        They are found before any of them is read: to ext4, what was read ahead is data as well.
        """
        ranges: list[tuple[int, int]] = []
        file = self._descriptor()
        while at < self.size:
            try:
                begin = os.lseek(file.fd, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # no data behind `at`
                    break
                raise
            at = os.lseek(file.fd, begin, os.SEEK_HOLE)
            ranges.append((begin, at))
        return ranges

    def sync(self) -> None:
        """Make what the file holds durable; blocks, and does nothing for one that was removed.

        A StoreError is final: the kernel may have dropped what it could not write, and a second
        call would succeed all the same.
        """
        if self.removed:
            return
        with final_errors(self.path):
            file = self._descriptor()
            os.fdatasync(file.fd)
            _check_that_the_file_system_lives(file.fd)

    def forget_cache(self, at: int) -> None:
        """Have the next reads from byte `at` on come from the disk; blocks for a sync.

        After a failed sync the kernel keeps the pages that it could not write, and calls them
        clean; what is read of them would be lost with the next power cut.
        """
        self.sync()
        with final_errors(self.path):
            file = self._descriptor()
            os.posix_fadvise(file.fd, at, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Let go of the file, once no other thread uses it; any later use is a ValueError."""
        self._closed = True
        self._open_files.let_go(self._holder)

    def remove(self) -> None:
        """Delete the file."""
        self.removed = True
        self.path.unlink()
        self.close()

    def _descriptor(self) -> Descriptor:
        """The open file. Its number is good while this object is held and not a moment longer: then
        another thread may close it, and the number is another file's.
        """
        if self._closed:  # or it would be opened again, and another process may own it by now
            raise ValueError(f"{self.path} is closed")
        return self._holder.descriptor or self._open_files.open(self._holder, self.path)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. A StoreError is final.

    XFS says yes to an fsync of a folder when it has shut itself down, as it does after an error of
    its log, and the names are lost; reading the folder then fails.
    """
    with final_errors(folder):
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
    Reading fails from then on, ext4 and XFS alike: even no bytes, which costs next to nothing.
    """
    os.pread(fd, 0, 0)


@contextlib.contextmanager
def final_errors(path: Path) -> Iterator[None]:
    """Say what an OSError means where something was to be made durable."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path}: it could not be made durable ({error}); what was written since the last "
            "flush may be lost. Check the disk"
        ) from error


def _allocation_error(path: Path, size: int, error: OSError) -> StoreError:
    if error.errno in NO_ROOM:
        return StoreFullError(
            f"{path}: no room for a segment of {size} bytes ({error.strerror}); nothing was "
            "written. Free space or enlarge the volume"
        )
    return StoreError(f"{path}: {size} bytes could not be allocated: {error}")
