"""An archive's folder: a compacted log in DLedger's files, and what it holds.

    ARCHIVE/archive.json                 which folder is valid, and what is in it
    ARCHIVE/log-<end>-<digest>/data      the log, as in a member's folder
    ARCHIVE/log-<end>-<digest>/index
    ARCHIVE/log-<end>-<digest>/currterm, checkpoint
    ARCHIVE/lock                         held by the process that writes the archive
    ARCHIVE/lock.hadoop                  exists while a run that names a URI writes the archive

A new log is written and synced completely. Then `archive.json` is replaced, and only then the old
log is removed. So a crash leaves the old archive or the new one, and the next run removes the rest.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from dledger_audit import folder_lock
from dledger_audit.compaction import names
from dledger_audit.folder_lock import FolderInUseError
from dledger_formats.folders import make_folder, sync_folder
from dledger_formats.log import properties
from dledger_formats.log.archives import (
    FOLDER_NAME,
    INFO_BYTES_MAX,
    INFO_FILE,
    ArchiveInfo,
    FileDigest,
)
from pyspark_dledger.copies import Copy, RefusedError
from pyspark_dledger.files import ReadError
from pyspark_dledger.folder import manifest_of

BLOCK_BYTES: Final = 4 << 20
_AGAIN: Final = "-again"


@dataclass(frozen=True, slots=True)
class Archive:
    """A complete archive."""

    path: Path
    info: ArchiveInfo

    @property
    def log(self) -> Path:
        """The folder with the log; `dledger-node store verify` takes it."""
        return self.path / self.info.folder

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Open an archive; None if there is none. Raises RefusedError if it cannot be read."""
        try:
            with (path / INFO_FILE).open("rb") as file:
                info = ArchiveInfo.from_json(file.read(INFO_BYTES_MAX + 1))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RefusedError(
                f"{path / INFO_FILE} cannot be read: {error}; restore it, or compact to a new "
                "folder if the group's log still has its first entry"
            ) from error
        if not (path / info.folder).is_dir():
            raise RefusedError(f"{path} lacks its folder {info.folder}; restore it from a backup")
        return cls(path, info)

    def copy(self) -> Copy:
        """Return the archive's log as a copy to read. Raises RefusedError."""
        try:
            manifest = manifest_of(self.log)
        except ReadError as error:
            raise RefusedError(f"{self.log} cannot be read: {error}") from error
        return Copy(member="the archive", place=str(self.log), manifest=manifest, is_archive=True)

    def damaged_files(self) -> list[str]:
        """Return the names of the files that do not hold what was written."""
        files = [each.name for each in self.info.files if not _is_whole(self.log / each.name, each)]
        small = self.info.small_files().items()
        return [*files, *(name for name, raw in small if not _holds(self.log / name, raw))]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Create an archive's folder if there is none, and lock it. Raises RefusedError.

    A folder that holds anything but an archive is refused, so no other files are ever removed.
    """
    try:
        fd = _open_lock(path)
    except OSError as error:
        raise RefusedError(
            f"{path} cannot hold an archive: {error}; name a folder that this user may write"
        ) from error
    try:
        _lock(fd, path)
        yield
    finally:
        os.close(fd)


def _open_lock(path: Path) -> int:
    make_folder(path)
    foreign = names.foreign(entry.name for entry in path.iterdir())
    if foreign is not None:
        raise RefusedError(f"{path} is no archive: it holds {foreign}; name an empty folder")
    return folder_lock.open_lock(path)


def _lock(fd: int, path: Path) -> None:
    try:
        folder_lock.lock(fd, path, cure="wait until it has ended")
    except FolderInUseError as error:
        raise RefusedError(str(error)) from error
    except OSError as error:
        raise RefusedError(f"{path} cannot be locked: {error}; name another folder") from error


def check_no_log(path: Path, first_index: int) -> None:
    """Raise RefusedError for a log without an `archive.json` that begins before `first_index`.

    A new archive would replace it, and it may be the only copy of what the members have removed. If
    they still have all of it, a first run that was killed may have left it.
    """
    for name in sorted(entry.name for entry in path.iterdir()):
        if FOLDER_NAME.fullmatch(name) and (begin := _begin_index(path / name)) < first_index:
            raise RefusedError(
                f"{path} has the log {name} and no {INFO_FILE} that describes it, and the members "
                f"begin with entry {first_index}, so only this log may have the entries from "
                f"{begin} on: restore {INFO_FILE} from a backup, or compact to another folder"
            )


def _begin_index(log: Path) -> int:
    """Return the first entry of a log by its `checkpoint`; 0 if that cannot be read."""
    try:
        return int(properties.parse((log / "checkpoint").read_bytes())["beginIndex"])
    except (OSError, ValueError, KeyError):
        return 0


def new_log(path: Path) -> Path:
    """Return the folder for a new log, and remove what a crash left there."""
    discard_new_log(path)
    folder = path / names.NEW_LOG
    folder.mkdir()
    return folder


def discard_new_log(path: Path) -> None:
    """Remove the new log of a run that failed, which may have filled the disk."""
    shutil.rmtree(path / names.NEW_LOG, ignore_errors=True)


def install(path: Path, info: ArchiveInfo) -> None:
    """Make the new log, whose files are synced, the archive's log, and remove all others."""
    new, final = path / names.NEW_LOG, path / info.folder
    for name, raw in info.small_files().items():
        _write(new / name, raw)
    sync_folder(new)
    shutil.rmtree(final, ignore_errors=True)  # a run that crashed here left it
    new.rename(final)
    temporary = path / f"{INFO_FILE}.tmp"
    try:
        sync_folder(path)
        _write(temporary, info.to_json())
        temporary.replace(path / INFO_FILE)
    except OSError:  # the old archive stays valid
        shutil.rmtree(final, ignore_errors=True)
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path)
    remove_others(path, info.folder)


def remove_others(path: Path, valid: str) -> None:
    """Remove all logs but the valid one, and what a killed run left. The next run tries again."""
    for name in names.others([entry.name for entry in path.iterdir()], valid):
        if names.is_log(name):
            shutil.rmtree(path / name, ignore_errors=True)
        else:
            with suppress(OSError):
                (path / name).unlink()


def folder_name(end_index: int, copy_sha256: str, previous: Archive | None) -> str:
    """Name a new log's folder; a damaged log with the same content may have the first name."""
    name = f"log-{end_index:020d}-{copy_sha256[:16]}"
    is_taken = previous is not None and previous.info.folder == name
    return name + _AGAIN if is_taken else name


def _holds(path: Path, raw: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(raw) + 1) == raw
    except OSError:
        return False


def _is_whole(path: Path, recorded: FileDigest) -> bool:
    digest, left = hashlib.sha256(), recorded.used_bytes
    try:
        with path.open("rb") as file:
            while left:
                block = file.read(min(left, BLOCK_BYTES))
                if not block:
                    return False
                digest.update(block)
                left -= len(block)
    except OSError:
        return False
    return digest.hexdigest() == recorded.sha256


def _write(path: Path, raw: bytes) -> None:
    with path.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
