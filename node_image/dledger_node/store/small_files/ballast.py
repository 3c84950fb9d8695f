"""Ballast: blocks kept in reserve for the small files that a full volume must not block.

A member that cannot save its vote can neither vote nor follow a new leader, so a full volume would
take it out of the group. It must also save a checkpoint before its log is cut, and before retention
makes room. For these files the member releases the ballast, and restores it once there is room.
"""

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from dledger_node.errors import StoreFullError
from dledger_node.store.segments.segment import NO_ROOM, final_errors, sync_folder
from dledger_node.store.small_files.properties import write_properties

T = TypeVar("T")

FILE_NAME: Final = "ballast"
SIZE_BYTES: Final = 64 * 1024
"""Enough for a new small file, its directory entry, and the file system's metadata."""


def create(folder: Path) -> bool:
    """Create the ballast or write it again, durably; return False if there is no room for it.

    Opening a store calls this, so a disk that accepts no writes fails here with StoreError. If one
    of the file's own blocks is bad, a new file replaces it.
    """
    path = folder / FILE_NAME
    with final_errors(path):
        try:
            return _write(path)
        except OSError:
            path.unlink(missing_ok=True)
            return _write(path)


def _write(path: Path) -> bool:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
    try:
        os.posix_fallocate(fd, 0, SIZE_BYTES)
        os.pwrite(fd, bytes(512), 0)
        os.fsync(fd)
    except OSError as error:
        if error.errno in NO_ROOM:
            return False
        raise
    finally:
        os.close(fd)
    return True


def restore(folder: Path) -> bool:
    """Create the ballast if it was released; return False if there is no room for it.

    Writes nothing if the ballast exists, so that an idle member leaves its disk alone.
    """
    return exists(folder) or create(folder)


def exists(folder: Path) -> bool:
    """Return whether the ballast holds its blocks."""
    with contextlib.suppress(FileNotFoundError):
        return (folder / FILE_NAME).stat().st_blocks * 512 >= SIZE_BYTES
    return False


def release(folder: Path) -> bool:
    """Free the blocks of the ballast; return False if there is none."""
    path = folder / FILE_NAME
    with contextlib.suppress(FileNotFoundError):
        used = path.stat().st_blocks > 0
        path.unlink()
        sync_folder(folder)
        return used
    return False


def spend(folder: Path, save: Callable[[], T]) -> T:
    """Call `save`; on a full volume, release the ballast of the folder and call it again; blocks.

    Raises StoreFullError if that does not suffice.
    """
    try:
        return save()
    except StoreFullError:
        if not release(folder):
            raise
        return save()


def save_properties(path: Path, values: Mapping[str, object]) -> None:
    """Replace a file durably; on a full volume, release the ballast of its folder and try again.

    Blocks for two fsyncs. After an OSError either the old or the new file is in place.
    """
    try:
        write_properties(path, values)
    except OSError as error:
        if error.errno not in NO_ROOM or not release(path.parent):
            raise
        write_properties(path, values)
