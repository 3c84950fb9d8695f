"""The files of consume queues: Java's names and units (`consume_queue`). All methods may block.

A file grows as units are written; Java's has its full size from the start. Where nothing was
written yet, a unit is a hole: 20 zero bytes, or the end of the file. No message has the physical
offset 0.
"""

import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import takewhile
from operator import itemgetter
from pathlib import Path
from typing import Final, TypeAlias

from dledger_broker.errors import QueueFilesError
from dledger_broker.queues import removed_units
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.open_file import OpenFile
from dledger_broker.queues.read_files import ReadFiles
from dledger_formats.folders import sync
from dledger_formats.log.disk import file_name
from dledger_formats.rocketmq.consume_queue import FILE_BYTES, UNIT, UNIT_BYTES, Unit

OPEN_FILES_MAX: Final = 512
"""Files that are open for writing."""

ReadCached: TypeAlias = Callable[[int, bytearray, int], int]
"""Reads the cached bytes of an open file from a position on; returns how many (`Member`)."""

Reading: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Notifies the member of a read of the disk (`Member.reading_disk`)."""

_PHYSICAL_OFFSET: Final = itemgetter(0)


class QueueFiles:
    """The files below one folder. One thread writes; several may read."""

    def __init__(
        self, folder: Path, *, file_bytes: int = FILE_BYTES, reading: Reading = nullcontext
    ) -> None:
        """Each read that may wait for the disk is done in a context of `reading`."""
        assert file_bytes % UNIT_BYTES == 0
        self._folder = folder
        self._file_bytes = file_bytes
        self._open: OrderedDict[Path, OpenFile] = OrderedDict()
        self._read = ReadFiles()
        self._reading = reading
        self._unsynced: dict[Path, None] = {}
        """Files with units, and folders with names, that a crash may undo."""

    def write(self, queue: QueueId, first_unit: int, units: bytes | bytearray) -> None:
        """Write consecutive units of a queue. Raises QueueFilesError."""
        view, at = memoryview(units), first_unit * UNIT_BYTES
        while view:
            begin = at - at % self._file_bytes
            part = view[: begin + self._file_bytes - at]
            path = self._path(queue, begin)
            try:
                written = os.pwrite(self._writable(path), part, at - begin)
            except OSError as error:
                raise QueueFilesError(f"cannot write {path}: {error}") from error
            self._unsynced[path] = None
            view, at = view[written:], at + written

    def read(self, queue: QueueId, first_unit: int, count: int) -> list[Unit]:
        """Return up to `count` units of one file, from `first_unit` up to the first hole.

        Raises QueueFilesError if the file cannot be read.
        """
        begin, at, size = self._place(first_unit, count)
        try:
            path = self._path(queue, begin)
            with self._reading():
                file = self._read.find(queue, begin) or self._read.open(queue, begin, path)
                raw = os.pread(file.fd, size, at)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise QueueFilesError(f"cannot read {path}: {error}") from error
        return _units_of(raw)

    def read_cached(
        self, queue: QueueId, first_unit: int, count: int, read: ReadCached
    ) -> list[Unit] | None:
        """Return what `read` would, as far as it is in the page cache; does not block.

        Return None if the file is not open, or cannot be read in this way.
        """
        begin, at, size = self._place(first_unit, count)
        raw, file = bytearray(size), self._read.find(queue, begin)
        if file is None:
            return None
        try:
            read_bytes = read(file.fd, raw, at)
        except OSError:
            return None
        return _units_of(raw[:read_bytes]) if read_bytes >= UNIT_BYTES else None

    def delete_topic(self, topic: str) -> None:
        """Delete all files of a topic. Raises QueueFilesError."""
        self._delete(self._folder / topic)

    def delete_all(self) -> None:
        """Delete all files. Raises QueueFilesError."""
        self._delete(self._folder)

    def trim(self, begin_pos: int) -> Iterator[int]:
        """Remove the units of messages before a position of the log (`removed_units`), queue by
        queue; yield how many bytes the files of each queue then take on disk.

        Anything else may be done between two queues. Raises QueueFilesError for the first queue
        with which that failed, after all others.
        """
        failed: QueueFilesError | None = None
        for topic in _names(self._folder):
            for name in filter(str.isdigit, _names(self._folder / topic)):
                folder = self._folder / topic / name
                release = partial(self._release, QueueId(topic, int(name)))
                try:
                    with self._reading():
                        disk_bytes = removed_units.trim(folder, begin_pos, release)
                except (FileNotFoundError, NotADirectoryError):
                    disk_bytes = 0  # its topic was deleted
                except OSError as error:
                    failed = failed or QueueFilesError(f"cannot trim {folder}: {error}")
                    disk_bytes = 0
                yield disk_bytes
        if failed is not None:
            raise failed

    def take_unsynced(self) -> list[Path]:
        """Return what `sync` has to make durable. Only the thread that writes may call this, and
        only while nothing is being synced.
        """
        paths, self._unsynced = list(self._unsynced), {}
        return paths

    def sync(self, paths: Sequence[Path]) -> None:
        """Make what was written or deleted durable, while more may be written.

        Raises QueueFilesError; what is not durable then is taken again.
        """
        for number, path in enumerate(paths):
            try:
                sync(path)
            except FileNotFoundError:
                pass  # it was deleted, and its folder is synced, too
            except OSError as error:
                self._unsynced.update(dict.fromkeys(paths[number:]))
                raise QueueFilesError(f"cannot sync {path}: {error}") from error

    def close(self) -> None:
        """Close all files."""
        self._read.close()
        self._open.clear()

    def _place(self, first_unit: int, count: int) -> tuple[int, int, int]:
        """Return where the file of a unit begins, and the position and size of the units in it."""
        at = first_unit * UNIT_BYTES
        begin = at - at % self._file_bytes
        return begin, at - begin, min(count * UNIT_BYTES, begin + self._file_bytes - at)

    def _path(self, queue: QueueId, begin: int) -> Path:
        return self._folder / queue.topic / str(queue.queue_id) / file_name(begin)

    def _writable(self, path: Path) -> int:
        """Return the descriptor of a file, which is created if it is missing."""
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file.fd
        try:
            file = OpenFile(path, os.O_RDWR)
        except FileNotFoundError:
            self._make_folders(path.parent)
            file = OpenFile(path, os.O_RDWR | os.O_CREAT)
            self._unsynced[path.parent] = None
        self._open[path] = file
        if len(self._open) > OPEN_FILES_MAX:
            self._open.popitem(last=False)
        return file.fd

    def _make_folders(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folders(folder.parent)
            folder.mkdir(exist_ok=True)
            self._unsynced[folder.parent] = None

    def _release(self, queue: QueueId, path: Path) -> None:
        """Close a file that will be deleted, so that nothing keeps its space."""
        self._open.pop(path, None)
        self._read.forget_file(queue, int(path.name))

    def _delete(self, folder: Path) -> None:
        for path in [path for path in self._open if path.is_relative_to(folder)]:
            del self._open[path]
        self._read.forget(folder)
        try:
            shutil.rmtree(folder)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise QueueFilesError(f"cannot delete {folder}: {error}") from error
        finally:
            self._read.forget(folder)  # a thread may have opened a file again before it was gone
        self._unsynced[folder.parent] = None


def _units_of(raw: bytes | bytearray) -> list[Unit]:
    """Return the units up to the first hole."""
    fields = UNIT.iter_unpack(raw[: len(raw) - len(raw) % UNIT_BYTES])
    return list(map(Unit._make, takewhile(_PHYSICAL_OFFSET, fields)))


def _names(folder: Path) -> list[str]:
    """Return the names in a folder; none if it was deleted, or cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []
