"""The snapshots of a state: `snapshot/snapshot_<lastIncludedIndex>/{snapshot_meta,data}`.

The names are DLedger's. A snapshot is written to a folder of another name, synced, renamed, and the
folder above is synced: so it is there as a whole, durably, or not at all. One whose files are not
what its meta says is damaged: it is never read, and stays until whoever can do without discards it.

    tmp/            a snapshot that is being saved
    install_tmp/    one that another member sends
    remove_tmp/     one on its way out

What a crash leaves of these is removed at the next start.
"""

import contextlib
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from dledger_formats.log.checksum import crc32
from dledger_node.errors import Damage, StoreDamagedError, StoreError, StoreFullError
from dledger_node.store.segments.segment import NO_ROOM, sync_folder
from dledger_node.store.snapshots import snapshot_meta
from dledger_node.store.snapshots.held_snapshots import HeldSnapshots
from dledger_node.store.snapshots.snapshot_meta import SnapshotMeta

logger = logging.getLogger(__name__)

FOLDER_NAME: Final = "snapshot"
DATA_NAME: Final = "data"
META_NAME: Final = "snapshot_meta"
SAVING_NAME: Final = "tmp"
INSTALLING_NAME: Final = "install_tmp"
REMOVING_NAME: Final = "remove_tmp"
UNFINISHED: Final = (SAVING_NAME, INSTALLING_NAME, REMOVING_NAME)
_NAME: Final = re.compile(r"snapshot_(0|[1-9][0-9]{0,18})")
_READ_BYTES: Final = 1 << 20


class Snapshots(HeldSnapshots):
    """The snapshots of one member; any thread may call, one change is made at a time."""

    def __init__(self, folder: Path, *, reserved: int) -> None:
        """Look at all of them; blocks, for every byte is read. StoreError, StoreFullError.

        The newest `reserved` are kept (maxSnapshotReservedNum). `folder` is the store's.
        """
        self._folder = folder / FOLDER_NAME
        self._reserved = reserved
        self._lock = threading.Lock()
        self._closed = False
        with disk_errors(self._folder):
            if not self._folder.is_dir():
                os.mkdir(self._folder)
                sync_folder(folder)
            for name in UNFINISHED:
                self._remove(self._folder / name)
            super().__init__(*look(self._folder))

    def save(
        self, index: int, term: int, pieces: Iterable[bytes], keep: Collection[int] = ()
    ) -> None:
        """Save a state that has applied all up to an entry, and remove what is one too many, but
        for those in `keep`.

        Blocks. After a StoreError the last ones stand; after a StoreFullError the very last, so
        that the others' room is free, and the log's that only they needed.
        """
        with self._lock:
            if self._closed or index <= self.newest_index:
                return  # another member's came in meanwhile
            try:
                with disk_errors(self._folder):
                    self._save(index, term, pieces)
                    self._prune(self._reserved, keep)
            except StoreFullError:
                with disk_errors(self._folder):
                    self._prune(1, keep)
                raise

    def read(self, meta: SnapshotMeta, load: Callable[[BinaryIO], None]) -> None:
        """Have a snapshot loaded, once its bytes are what they were. StoreDamagedError."""
        self.verify(self.folder_of(meta) / DATA_NAME, meta, load)

    def chunk(self, meta: SnapshotMeta, offset: int, size: int) -> bytes | None:
        """Some bytes of a snapshot's data; None when it was removed meanwhile, or is cut short."""
        try:
            with (self.folder_of(meta) / DATA_NAME).open("rb") as file:
                data = os.pread(file.fileno(), size, offset)
        except OSError:
            return None
        return data if len(data) == min(size, meta.data_bytes - offset) else None

    def is_sound(self, meta: SnapshotMeta) -> bool:
        """Whether a snapshot is here, and what was written; blocks, for every byte is read.

        One that has rotted stays until another is saved.
        """
        try:
            with (self.folder_of(meta) / DATA_NAME).open("rb") as file:
                _check_data(file, meta)
        except OSError:
            return False  # it was removed meanwhile, or cannot be read now
        except ValueError as error:
            with self._lock:
                if meta in self._held:
                    index = meta.last_included_index
                    logger.warning("the snapshot up to entry %d has rotted: %s", index, error)
                    self._distrust(index, str(error))
            return False
        return True

    @staticmethod
    def verify(path: Path, meta: SnapshotMeta, load: Callable[[BinaryIO], None]) -> None:
        """Have data loaded that is as its meta says; blocks. StoreDamagedError when it is not."""
        try:
            with path.open("rb") as file:
                _check_data(file, meta)
                file.seek(0)
                load(file)
        except (OSError, ValueError) as error:
            raise StoreDamagedError(f"{path}: {error}", Damage.BAD_SNAPSHOT) from error

    def adopt(self, meta: SnapshotMeta) -> None:
        """Take the snapshot whose data is in `install_tmp`, which was verified; blocks."""
        with self._lock, disk_errors(self._folder):
            with (self._folder / INSTALLING_NAME / DATA_NAME).open("rb") as file:
                os.fsync(file.fileno())
            self._adopt(INSTALLING_NAME, meta)

    def discard(self, index: int) -> None:
        """Remove a snapshot that nobody can use; blocks."""
        with self._lock, disk_errors(self._folder):
            self._discard(index)

    def close(self) -> None:
        """Change nothing any more; blocks until a change that is under way is done."""
        with self._lock:
            self._closed = True

    def installing(self) -> Path:
        """An empty folder for a snapshot that another member sends; blocks."""
        path = self._folder / INSTALLING_NAME
        with self._lock, disk_errors(path):
            self._remove(path)
            os.mkdir(path)
        return path

    def folder_of(self, meta: SnapshotMeta) -> Path:
        """Where a snapshot lies."""
        return self._folder / f"snapshot_{meta.last_included_index}"

    # -- inside ------------------------------------------------------------------------------------

    def _save(self, index: int, term: int, pieces: Iterable[bytes]) -> None:
        path = self._folder / SAVING_NAME
        self._remove(path)
        os.mkdir(path)
        try:
            data_bytes, data_crc32 = _write(path / DATA_NAME, pieces)
            meta = SnapshotMeta(
                last_included_index=index,
                last_included_term=term,
                data_bytes=data_bytes,
                data_crc32=data_crc32,
            )
            self._adopt(SAVING_NAME, meta)
        finally:
            self._remove(path)

    def _adopt(self, source: str, meta: SnapshotMeta) -> None:
        """Give a folder, whose data is synced, its meta and its name, durably."""
        path, target = self._folder / source, self.folder_of(meta)
        _write(path / META_NAME, [snapshot_meta.encode(meta)])
        sync_folder(path)
        if target.is_dir():  # a damaged one, or one that is there already
            self._retire(meta.last_included_index)
        os.replace(path, target)
        sync_folder(self._folder)
        self._note(meta)

    def _discard(self, index: int) -> None:
        self._forget(index)
        self._retire(index)

    def _prune(self, reserved: int, keep: Collection[int]) -> None:
        for index in self._surplus(reserved, keep):
            self._discard(index)

    def _retire(self, index: int) -> None:
        """Remove a snapshot's folder: first its name, so that a crash leaves no half of one."""
        removing = self._folder / REMOVING_NAME
        self._remove(removing)
        os.replace(self._folder / f"snapshot_{index}", removing)
        sync_folder(self._folder)
        self._remove(removing)

    @staticmethod
    def _remove(path: Path) -> None:
        if path.is_dir():
            shutil.rmtree(path)


def look(folder: Path) -> tuple[tuple[SnapshotMeta, ...], dict[int, str]]:
    """The sound snapshots of a folder, the oldest first, and why the others are none; blocks, for
    every byte is read.
    """
    held: list[SnapshotMeta] = []
    damaged: dict[int, str] = {}
    for path in folder.iterdir():
        name = _NAME.fullmatch(path.name)
        if name is None:
            continue
        try:
            held.append(_checked(path, int(name[1])))
        except (OSError, ValueError) as error:
            if path.is_dir():  # it may have been removed by the node beside which this looks
                damaged[int(name[1])] = str(error)
    return tuple(sorted(held, key=lambda meta: meta.last_included_index)), damaged


def _checked(path: Path, index: int) -> SnapshotMeta:
    """The meta of a snapshot whose files are what it says; ValueError, OSError."""
    with (path / META_NAME).open("rb") as file:
        meta = snapshot_meta.decode(file.read(snapshot_meta.META_BYTES_MAX + 1))
    if meta.last_included_index != index:
        raise ValueError(f"{path} holds a snapshot up to entry {meta.last_included_index}")
    with (path / DATA_NAME).open("rb") as file:
        _check_data(file, meta)
    return meta


def _check_data(file: BinaryIO, meta: SnapshotMeta) -> None:
    """ValueError unless the file is what the meta says."""
    size, checksum = 0, 0
    while piece := file.read(_READ_BYTES):
        size += len(piece)
        checksum = crc32(piece, checksum)
    if (size, checksum) != (meta.data_bytes, meta.data_crc32):
        raise ValueError(
            f"{size} bytes of checksum {checksum:08x}, where {meta.data_bytes} of "
            f"{meta.data_crc32:08x} were written"
        )


def _write(path: Path, pieces: Iterable[bytes]) -> tuple[int, int]:
    """Write a new file and sync it; returns its size and checksum."""
    size, checksum = 0, 0
    with path.open("xb") as file:
        for piece in pieces:
            file.write(piece)
            size += len(piece)
            checksum = crc32(piece, checksum)
        file.flush()
        os.fsync(file.fileno())
    return size, checksum


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Name the path in an error of the disk: StoreFullError, StoreError."""
    try:
        yield
    except OSError as error:
        kind = StoreFullError if error.errno in NO_ROOM else StoreError
        raise kind(f"{path}: a snapshot could not be kept: {error}") from error
