"""A few blocks kept in reserve, so that term and vote can be saved on a volume that is full.

A member that cannot save its vote can neither vote nor follow a new leader, so a full volume would
take it out of the group altogether. The reserve is given up for that, and made again once there is
room.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

from dledger_node.store.segments.segment import NO_ROOM, final_errors, sync_folder

FILE_NAME: Final = "ballast"
SIZE_BYTES: Final = 64 * 1024
"""A new small file, its place in the folder, and what file systems add to that."""


def make(folder: Path) -> bool:
    """Have the reserve in place, durably; False when there is no room for it.

    StoreError when the disk takes nothing: it is written whenever a store is opened. Where one of
    its own blocks is bad, another file takes its place.
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


def make_again(folder: Path) -> bool:
    """The same where the reserve was given up; otherwise nothing is written, so that a member to
    which nothing happens leaves its disk alone. Opening has made what is there durable.
    """
    with contextlib.suppress(FileNotFoundError):
        if (folder / FILE_NAME).stat().st_blocks * 512 >= SIZE_BYTES:
            return True
    return make(folder)


def give_up(folder: Path) -> bool:
    """Free the reserve; False when there is none."""
    path = folder / FILE_NAME
    with contextlib.suppress(FileNotFoundError):
        used = path.stat().st_blocks > 0
        path.unlink()
        sync_folder(folder)
        return used
    return False
