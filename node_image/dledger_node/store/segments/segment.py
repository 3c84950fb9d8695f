"""One file of the log: read with `pread`, written with `pwrite`, never memory-mapped.

DLedger maps its files. In Python a mapping costs more than it saves: a page fault stops every
thread until the disk answers, an unreadable sector or a full disk kills the process with SIGBUS,
and pages dirtied through a mapping make `fdatasync` several times slower (`bench/store.py` measures
it). Here each of these failures is an error that names the file.

A segment is allocated on disk before its first byte is written, so that a full disk rejects a batch
and never tears one.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from dledger_formats.log.disk import Buffer
from dledger_node.errors import Damage, StoreDamagedError, StoreError, StoreFullError
from dledger_node.store.segments import page_cache
from dledger_node.store.segments.open_files import Descriptor, Holder, OpenFiles

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class SegmentClosedError(ValueError):
    """The segment was removed, or the log was closed."""


class Segment:
    """A file of fixed size; `start` is the position of its first byte in the log.

    Any thread may `read` and `sync`; all other methods are for the thread that writes.
    """

    __slots__ = (
        "_closed", "_holder", "_open_files", "first_index", "name_is_durable", "path", "removed",
        "size", "start",
    )  # fmt: skip

    def __init__(self, path: Path, start: int, size: int, open_files: OpenFiles) -> None:
        self.path = path
        self.start = start
        self.size = size
        self.removed = False
        self.first_index: int | None = None
        """The first entry that begins in this data segment, once it was looked up (`LogFiles`)."""
        self._closed = False
        self.name_is_durable = True
        """Whether the folder was synced since the file got its name."""
        self._open_files = open_files
        self._holder = Holder()

    @classmethod
    def create(cls, path: Path, size: int, open_files: OpenFiles) -> Self:
        """Create a fully allocated file of zeros. The file is durable, but not its name.

        Raises StoreFullError, and leaves no file, if there is no room.
        """
        try:
            _check_room(path.parent, size)
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
        """Position in the log after the last byte of this file."""
        return self.start + self.size

    def move_into_log(self, path: Path, start: int) -> None:
        """Rename a spare segment to its place in the log; durable once the folder is synced."""
        os.rename(self.path, path)
        self.path, self.start, self.name_is_durable = path, start, False

    def read(self, at: int, size: int) -> bytes:
        """Read `size` bytes from byte `at` on, fewer at the end of the file.

        Raises StoreDamagedError if the disk cannot read them or the file was cut short.
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
                f"{self.path} ends at byte {at + len(data)}; it must have {self.size} bytes",
                Damage.UNREADABLE,
            )
        return data

    def read_cached(self, at: int, size: int) -> bytearray | None:
        """Read bytes that are in the page cache, or return None if not all are; does not block.

        Also returns None on file systems that cannot say what is cached. Raises StoreDamagedError.
        """
        data = bytearray(size)
        return data if self.read_cached_into(at, data) else None

    def read_cached_into(self, at: int, buffer: bytearray | memoryview) -> bool:
        """Fill a buffer from the page cache; return whether all bytes are there.

        Also returns False if the file is not open, since opening it may block. Raises
        StoreDamagedError.
        """
        file = self._if_open()
        if file is None:
            return False
        try:
            count = page_cache.read_cached(file.fd, buffer, at)
        except OSError as error:
            raise StoreDamagedError(
                f"{self.path}, byte {at}: {len(buffer)} bytes cannot be read: {error}",
                Damage.UNREADABLE,
            ) from error
        return count == len(buffer)

    def read_ahead(self, at: int, size: int) -> None:
        """Let the kernel begin to read bytes that will be needed soon."""
        with contextlib.suppress(OSError):
            file = self._descriptor()
            os.posix_fadvise(file.fd, at, size, os.POSIX_FADV_WILLNEED)

    def write(self, at: int, data: Buffer) -> None:
        """Write all of `data` at byte `at`; it is durable after a `sync` that begins later.

        A StoreError is final: part of `data` may have been written.
        """
        try:
            file = self._descriptor()
            written = os.pwrite(file.fd, data, at)
            while written < len(data):
                written += os.pwrite(file.fd, memoryview(data)[written:], at + written)
        except OSError as error:
            raise StoreError(f"{self.path}, byte {at}: write failed: {error}") from error

    def allocate(self) -> None:
        """Allocate the holes that Java leaves in its files. Raises StoreFullError."""
        if self.path.stat().st_blocks * 512 >= self.size:
            return
        try:
            file = self._descriptor()
            os.posix_fallocate(file.fd, 0, self.size)
        except OSError as error:
            raise _allocation_error(self.path, self.size, error) from error

    def data_ranges(self, at: int) -> list[tuple[int, int]]:
        """Return the ranges from byte `at` on that may hold non-zero bytes, per the file system.

        The caller must get the whole list before it reads: ext4 reports read-ahead pages as data.
        """
        ranges: list[tuple[int, int]] = []
        file = self._descriptor()
        while at < self.size:
            try:
                begin = os.lseek(file.fd, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # no data after `at`
                    break
                raise
            at = os.lseek(file.fd, begin, os.SEEK_HOLE)
            ranges.append((begin, at))
        return ranges

    def sync(self) -> None:
        """Make the file's content durable; blocks. Does nothing if the file was removed.

        A StoreError is final: the kernel may have dropped the pages that it could not write, and a
        second call would succeed all the same.
        """
        if self.removed:
            return
        try:
            with final_errors(self.path):
                file = self._descriptor()
                os.fdatasync(file.fd)
                _check_file_system_is_up(file.fd)
        except (StoreError, ValueError):
            if not self.removed:  # another thread may have removed it in the meantime
                raise

    def forget_cache(self, at: int) -> None:
        """Drop cached pages from byte `at` on, so that reads come from the disk; blocks for a sync.

        After a failed sync the kernel keeps the pages that it could not write and marks them clean;
        their content would be lost at the next power cut.
        """
        self.sync()
        with final_errors(self.path):
            file = self._descriptor()
            os.posix_fadvise(file.fd, at, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Release the file; any later use raises SegmentClosedError."""
        self._closed = True
        self._open_files.release(self._holder)

    def remove(self) -> None:
        """Delete the file."""
        self.removed = True
        self.path.unlink()
        self.close()

    def _descriptor(self) -> Descriptor:
        """Return the open file.

        Its `fd` is valid only while the caller holds this object: once it is dropped, another
        thread may close it and the number may be reused for another file.
        """
        return self._if_open() or self._open_files.open(self._holder, self.path)

    def _if_open(self) -> Descriptor | None:
        """Return the open file; None if it must be opened, which may wait for the disk."""
        if self._closed:  # must not be opened again: another process may own the store by now
            raise SegmentClosedError(f"{self.path} is closed")
        return self._holder.descriptor


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. A StoreError is final.

    An XFS that has shut itself down, as it does after an error of its log, reports success for an
    fsync of a folder, and the names are lost. Listing the folder then fails.
    """
    with final_errors(folder):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
            os.listdir(fd)
        finally:
            os.close(fd)


def _check_file_system_is_up(fd: int) -> None:
    """Raise OSError if the file system of an open file has shut itself down.

    On ext4 an fdatasync that is in flight at that moment may report success: the data is written,
    but its preallocated extent stays marked as unwritten and reads as zeros after the next mount.
    From then on every read fails, on ext4 and XFS, even one of zero bytes, which costs little.
    """
    os.pread(fd, 0, 0)


@contextlib.contextmanager
def final_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of a sync into a StoreError that says what may be lost."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path}: sync failed ({error}); data written since the last flush may be lost. Check "
            "the disk"
        ) from error


def disk_error(what: str, error: OSError) -> StoreError:
    """Return the error of a failed disk operation: StoreFullError if the volume is full."""
    kind = StoreFullError if error.errno in NO_ROOM else StoreError
    return kind(f"{what}: {error}")


def _check_room(folder: Path, size: int) -> None:
    """Raise OSError if a volume certainly has too few free blocks.

    An allocation on ext4 takes all blocks that are left before it fails, and gives them back only
    then. What other threads must save meanwhile, such as a vote, would find none.
    """
    volume = os.statvfs(folder)
    free_blocks = volume.f_bfree if os.geteuid() == 0 else volume.f_bavail
    if volume.f_blocks > 0 and free_blocks * volume.f_frsize < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _allocation_error(path: Path, size: int, error: OSError) -> StoreError:
    if error.errno in NO_ROOM:
        return StoreFullError(
            f"{path}: no room for a segment of {size} bytes ({error.strerror}); nothing was "
            "written. Free space or expand the volume"
        )
    return StoreError(f"{path}: cannot allocate {size} bytes: {error}")
