"""The snapshots of a state: `snapshot/snapshot_<lastIncludedIndex>/{snapshot_meta,data}`.

The names are DLedger's. A snapshot is written to a temporary folder, synced and renamed, then the
parent folder is synced, so it exists whole and durably or not at all. A snapshot whose files do not
match its meta is damaged: it is never read, and stays until the caller discards it.

    tmp/            a snapshot that is being saved
    install_tmp/    a snapshot that another member is sending
    remove_tmp/     a snapshot that is being removed

The next start removes what a crash leaves in these folders.
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

from dledger_formats.log import snapshot_meta
from dledger_formats.log.checksum import crc32
from dledger_formats.log.snapshot_meta import SnapshotMeta
from dledger_node.errors import Damage, StoreDamagedError, StoreFullError
from dledger_node.shortages import is_passing
from dledger_node.store.segments.segment import disk_error, sync_folder
from dledger_node.store.snapshots.held_snapshots import HeldSnapshots

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
    """The snapshots of one member; any thread may call, changes are serialized."""

    def __init__(self, folder: Path, *, reserved: int) -> None:
        """List and verify all snapshots; blocks, since it reads every byte.

        `folder` is that of the store. The newest `reserved` snapshots are kept
        (maxSnapshotReservedNum). Raises StoreError, StoreFullError.
        """
        self._folder = folder / FOLDER_NAME
        self._reserved = reserved
        self._lock = threading.Lock()
        self._closed = False
        with disk_errors(self._folder):
            if not self._folder.is_dir():
                os.mkdir(self._folder)
                sync_folder(folder)
            self._keep_trace()
            for name in UNFINISHED:
                self._remove(self._folder / name)
            super().__init__(*list_snapshots(self._folder))

    def save(
        self, index: int, term: int, pieces: Iterable[bytes], keep: Collection[int] = ()
    ) -> None:
        """Save a state that has applied all entries up to `index`; remove surplus snapshots.

        Blocks. Snapshots in `keep` are not removed. After a StoreError all earlier snapshots
        remain; after a StoreFullError only the newest, which frees the room of the others and of
        the log entries that only they needed.
        """
        with self._lock:
            if self._closed or index <= self.newest_index:
                return  # a newer one from another member was installed
            try:
                with disk_errors(self._folder):
                    self._save(index, term, pieces)
                    self._prune(self._reserved, keep)
            except StoreFullError:
                with disk_errors(self._folder):
                    self._prune(1, keep)
                raise

    def read(self, meta: SnapshotMeta, load: Callable[[BinaryIO], None]) -> None:
        """Verify a snapshot, then pass its data to `load`. Raises StoreDamagedError."""
        self.verify(self.folder_of(meta) / DATA_NAME, meta, load)

    def chunk(self, meta: SnapshotMeta, offset: int, size: int) -> bytes | None:
        """Read a chunk of a snapshot's data; None if the snapshot was removed or is damaged.

        A snapshot that cannot be read, or was cut short, counts as damaged from then on.
        """
        try:
            with (self.folder_of(meta) / DATA_NAME).open("rb") as file:
                data = os.pread(file.fileno(), size, offset)
        except OSError as error:
            self._note_unread(meta, error)
            return None
        if len(data) < min(size, meta.data_bytes - offset):
            self._note_damage(meta, f"the data ends at byte {offset + len(data)}")
            return None
        return data

    def is_sound(self, meta: SnapshotMeta) -> bool:
        """Return whether a snapshot exists and its bytes are unchanged; blocks.

        Reads every byte. A damaged snapshot stays until another one is saved.
        """
        try:
            with (self.folder_of(meta) / DATA_NAME).open("rb") as file:
                _check_data(file, meta)
        except OSError as error:
            self._note_unread(meta, error)
            return False
        except ValueError as error:
            self._note_damage(meta, str(error))
            return False
        return True

    @staticmethod
    def verify(path: Path, meta: SnapshotMeta, load: Callable[[BinaryIO], None]) -> None:
        """Verify data against its meta, then pass it to `load`; blocks.

        Raises StoreDamagedError if the data does not match.
        """
        try:
            with path.open("rb") as file:
                _check_data(file, meta)
                file.seek(0)
                load(file)
        except (OSError, ValueError) as error:
            raise StoreDamagedError(f"{path}: {error}", Damage.BAD_SNAPSHOT) from error

    def adopt(self, meta: SnapshotMeta) -> None:
        """Add the snapshot whose verified data is in `install_tmp`; blocks."""
        with self._lock, disk_errors(self._folder):
            with (self._folder / INSTALLING_NAME / DATA_NAME).open("rb") as file:
                os.fsync(file.fileno())
            self._adopt(INSTALLING_NAME, meta)

    def discard(self, index: int) -> None:
        """Remove a snapshot that cannot be used; blocks."""
        with self._lock, disk_errors(self._folder):
            self._discard(index)

    def close(self) -> None:
        """Ignore later saves; blocks until a change in progress is done."""
        with self._lock:
            self._closed = True

    def installing(self, data_bytes: int) -> Path:
        """Return an empty folder for a snapshot of this size that another member sends; blocks.

        Raises StoreFullError if the volume has fewer available bytes.
        """
        path = self._folder / INSTALLING_NAME
        with self._lock, disk_errors(path):
            self._remove(path)
            available_bytes = _available_bytes(self._folder)
            if data_bytes > available_bytes:
                raise StoreFullError(
                    f"{path}: no room for a snapshot of {data_bytes} bytes: the volume has "
                    f"{available_bytes} available bytes"
                )
            os.mkdir(path)
        return path

    def drop_installing(self) -> None:
        """Remove the received part of a snapshot that another member sends; blocks."""
        path = self._folder / INSTALLING_NAME
        with self._lock, disk_errors(path):
            self._remove(path)

    def folder_of(self, meta: SnapshotMeta) -> Path:
        """Return the folder of a snapshot."""
        return self._folder / f"snapshot_{meta.last_included_index}"

    def _note_unread(self, meta: SnapshotMeta, error: OSError) -> None:
        """Note that a read failed. An unreadable sector stays so, and another snapshot must be used
        or made; a lack of descriptors or memory passes.
        """
        if not is_passing(error) and self.folder_of(meta).is_dir():
            self._note_damage(meta, str(error))

    def _note_damage(self, meta: SnapshotMeta, reason: str) -> None:
        """Note that a read has found a snapshot damaged, unless it was removed meanwhile."""
        with self._lock:
            if meta in self._held:
                index = meta.last_included_index
                logger.warning("the snapshot of entry %d is damaged: %s", index, reason)
                self._distrust(index, reason)

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
        """Write the meta of a folder whose data is synced, and rename the folder, durably."""
        path, target = self._folder / source, self.folder_of(meta)
        _write(path / META_NAME, [snapshot_meta.encode(meta)])
        sync_folder(path)
        is_replaced = target.is_dir()  # it is damaged, or the same one
        if is_replaced:
            self._move_away(meta.last_included_index)
        os.replace(path, target)
        sync_folder(self._folder)
        self._note(meta)
        if is_replaced:
            self._remove(self._folder / REMOVING_NAME)

    def _discard(self, index: int) -> None:
        self._forget(index)
        self._retire(index)

    def _prune(self, reserved: int, keep: Collection[int]) -> None:
        for index in self._surplus(reserved, keep):
            self._discard(index)

    def _retire(self, index: int) -> None:
        """Rename a snapshot's folder, then remove it: a crash leaves no partial snapshot."""
        self._move_away(index)
        self._remove(self._folder / REMOVING_NAME)

    def _move_away(self, index: int) -> None:
        removing = self._folder / REMOVING_NAME
        self._remove(removing)
        os.replace(self._folder / f"snapshot_{index}", removing)
        sync_folder(self._folder)

    def _keep_trace(self) -> None:
        """Name the only snapshot again, if a crash left it in `remove_tmp`.

        It was damaged, and another one was about to take its name. Without any snapshot, this
        member would look like one that never had a state, and would not heal.
        """
        removing = self._folder / REMOVING_NAME
        if removing.is_dir() and not any(
            _NAME.fullmatch(name) for name in os.listdir(self._folder)
        ):
            os.replace(removing, self._folder / f"snapshot_{_index_of(removing)}")
            sync_folder(self._folder)

    @staticmethod
    def _remove(path: Path) -> None:
        if path.is_dir():
            shutil.rmtree(path)


def list_snapshots(folder: Path) -> tuple[tuple[SnapshotMeta, ...], dict[int, str]]:
    """Return the sound snapshots of a folder, oldest first, and the damaged ones with the reason.

    Blocks, since it reads every byte.
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
            if path.is_dir():  # otherwise a running node has just removed it
                damaged[int(name[1])] = str(error)
    return tuple(sorted(held, key=lambda meta: meta.last_included_index)), damaged


def _index_of(path: Path) -> int:
    """Return the last included index of a snapshot by its meta; 0 if that cannot be read."""
    try:
        return _meta_in(path).last_included_index
    except (OSError, ValueError):
        return 0


def _meta_in(path: Path) -> SnapshotMeta:
    with (path / META_NAME).open("rb") as file:
        return snapshot_meta.decode(file.read(snapshot_meta.META_BYTES_MAX + 1))


def _checked(path: Path, index: int) -> SnapshotMeta:
    """Return the meta of a sound snapshot. Raises ValueError or OSError."""
    meta = _meta_in(path)
    if meta.last_included_index != index:
        raise ValueError(
            f"the folder and its meta disagree: the meta says entry {meta.last_included_index}"
        )
    with (path / DATA_NAME).open("rb") as file:
        _check_data(file, meta)
    return meta


def _check_data(file: BinaryIO, meta: SnapshotMeta) -> None:
    """Raise ValueError unless the file matches the meta."""
    size, checksum = 0, 0
    while piece := file.read(_READ_BYTES):
        size += len(piece)
        checksum = crc32(piece, checksum)
    if (size, checksum) != (meta.data_bytes, meta.data_crc32):
        raise ValueError(
            f"the data has {size} bytes and checksum {checksum:08x}; the meta says "
            f"{meta.data_bytes} bytes and checksum {meta.data_crc32:08x}"
        )


def _write(path: Path, pieces: Iterable[bytes]) -> tuple[int, int]:
    """Write a new file and sync it; return its size and checksum."""
    size, checksum = 0, 0
    with path.open("xb") as file:
        for piece in pieces:
            file.write(piece)
            size += len(piece)
            checksum = crc32(piece, checksum)
        file.flush()
        os.fsync(file.fileno())
    return size, checksum


def _available_bytes(folder: Path) -> int:
    """Return the free bytes of a volume, without those that only root may use."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a StoreFullError or StoreError that names the path."""
    try:
        yield
    except OSError as error:
        raise disk_error(f"{path}: cannot save or remove a snapshot", error) from error
