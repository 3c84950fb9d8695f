"""Writing an export to standard output, or to a file that may hold the beginning of one."""

import asyncio
import fcntl
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from dledger_client.exports.reading import OnBytes, resume_point
from dledger_client.exports.records import (
    ExportedEntry,
    ExportError,
    Head,
    WrongSourceError,
    pack_end,
    pack_entries,
    pack_head,
)
from dledger_client.opening import open_file
from dledger_client.paced import PacedFile
from dledger_formats.folders import sync_folder
from dledger_formats.protocol.entry import DLedgerEntry


class ExportWriter:
    """Writes records after those that the export has. Its methods raise OSError.

    If a method is cancelled while the reader of a pipe takes nothing, its records are counted
    nevertheless, and are written in full before any later one.
    """

    def __init__(self, file: int) -> None:
        """Begin an export in a file; the writer takes ownership of its descriptor."""
        self.first_index: int | None = None
        """The index of the first entry; None before the head."""
        self._file = file
        self._is_regular = stat.S_ISREG(os.fstat(file).st_mode)
        self._output = PacedFile(file)
        self._path: Path | None = None  # of a regular file that it was given by its path
        self._is_new = False  # whether this writer has created that file
        self._checksum: int | None = None  # None before the head
        self._size: int | None = None  # to which the file is cut before the first write
        self.group: str | None = None
        """The group of the entries that the export has; None before the head."""
        self.last: ExportedEntry | None = None
        """The last entry of the export when it was opened; None without one."""
        self.next_index: int | None = None
        """The index of the next entry; None before the head."""
        self.mark_index: int | None = None
        """The index of the mark that the export had when it was opened; None without one."""
        self.entries = 0
        """Number of entries that were written."""
        self.size_bytes = 0
        """Number of bytes that were written."""

    @classmethod
    async def to_file(
        cls, path: Path, on_bytes: OnBytes = lambda _: None, mark: bytes | None = None
    ) -> Self:
        """Open and lock a file to extend what it holds. Raises ExportError or OSError.

        The file is not changed before the first write. A named pipe or a device is not read.
        """
        if _is_special(path):
            return cls(await open_file(path, os.O_WRONLY))
        try:
            file, is_new = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640), True
        except FileExistsError:
            file, is_new = os.open(path, os.O_RDWR), False
        writer = cls(file)
        writer._path, writer._is_new = path, is_new
        try:
            _lock(file, path)
            await writer._extend(path, on_bytes, mark)
        except BaseException:  # a cancellation, too, must release the lock
            writer.close()
            raise
        return writer

    async def _extend(self, path: Path, on_bytes: OnBytes, mark: bytes | None) -> None:
        """Prepare to write after the last entry of a file."""
        found = await resume_point(path, on_bytes, mark)
        if found is None:
            self._size = 0
            return
        assert found.head is not None
        self.group, self.last, self.mark_index = found.head.group, found.last, found.mark_index
        self.first_index, self.next_index = found.head.first_index, found.next_index
        self._checksum, self._size = found.checksum, found.offset

    async def begin(self, head: Head) -> None:
        """Write the head, unless the export has one. Raises ExportError if it has another."""
        if self._checksum is None:
            raw, self._checksum = pack_head(head)
            self.first_index = self.next_index = head.first_index
            self.group = head.group
            await self._write(raw)
        elif self.group and self.group != head.group:  # of a folder, it need not have a name
            raise WrongSourceError(f"the export holds entries of {self.group}, not of {head.group}")

    async def write(self, entries: Sequence[DLedgerEntry]) -> None:
        """Write the next entries."""
        assert self._checksum is not None
        assert entries[0].index == self.next_index
        raw, self._checksum = pack_entries(entries, self._checksum)
        self.next_index = entries[-1].index + 1
        self.entries += len(entries)
        await self._write(raw)

    async def end(self, reader_wait_s: float | None = None) -> None:
        """Write the end, and make a file durable.

        Raises TimeoutError if a reader has not taken all of it within `reader_wait_s`, ExportError
        if the file is not durable.
        """
        assert self._checksum is not None
        assert self.next_index is not None
        ending = self._write(pack_end(self.next_index, self._checksum))
        await asyncio.wait_for(ending, None if self._is_regular else reader_wait_s)
        if self._is_regular:  # a device need not support it
            self._sync()

    def close(self) -> None:
        """Close the file; without an end, it can be extended later. Leave no empty file behind."""
        if self._is_new and self._path is not None and not self.size_bytes:
            self._path.unlink(missing_ok=True)
        self._output.close()

    def _sync(self) -> None:
        """Make the file durable, and its name."""
        try:
            os.fsync(self._file)
            if self._path is not None:
                sync_folder(self._path.parent)
        except OSError as error:
            # The kernel may have dropped what it could not write. So the next fsync would succeed,
            # and the file would read as whole until it is no longer in the page cache.
            where = "its file" if self._path is None else self._path
            raise ExportError(
                f"the export may not be on the disk: {error.strerror}; remove {where}, and export "
                "again"
            ) from error

    async def _write(self, raw: bytes) -> None:
        if self._size is not None:
            os.ftruncate(self._file, self._size)
            os.lseek(self._file, self._size, os.SEEK_SET)
            self._size = None
        self._output.put(raw)
        self.size_bytes += len(raw)
        await self._output.flush()


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _lock(file: int, path: Path) -> None:
    """Raise ExportError if another process writes the file; its lock ends with the process."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ExportError(
            f"another process writes {path}: wait until it has ended, or name another file"
        ) from None
