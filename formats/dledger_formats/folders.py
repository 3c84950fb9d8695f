"""Files, and names in folders, that must survive a crash of the machine."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Make a file's content durable, or the names in a folder. Raises OSError."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises OSError, also if it is no folder."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def make_folder(folder: Path) -> None:
    """Make a folder whose name is durable, and those of its parents that it makes. Raises OSError.

    Each folder is synced before the next one is made in it. So if a crash interrupts this, only the
    last folder that was made may not be durable, and the next run syncs that first.
    """
    if not folder.exists():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    elif not os.access(folder.parent, os.R_OK | os.W_OK):
        return  # somebody else has made the folder
    sync_folder(folder.parent)


def _sync(path: Path, flags: int) -> None:
    opened = os.open(path, flags)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
