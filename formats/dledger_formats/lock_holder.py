"""Which process holds the lock of a file."""

import os
from collections.abc import Iterable
from pathlib import Path


def holder_of(path: Path) -> int | None:
    """Return the process that holds the lock of a file (`flock`); None if no process is known to.

    Reads /proc/locks, and so takes no lock itself.
    """
    try:
        found = path.stat()
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    return holder_among(locks, found.st_dev, found.st_ino)


def holder_among(locks: Iterable[str], device: int, inode: int) -> int | None:
    """Return the process that holds the lock of a file, by the lines of /proc/locks.

    On a file system with an anonymous device (major number 0), such as overlayfs or Btrfs, the
    device in /proc/locks may not be the one that `stat` returns. So a lock of the same inode on
    another device counts there if there is no better one. On a real device it is of another file.
    """
    place = f"{os.major(device):02x}:{os.minor(device):02x}"
    other = None
    for words in map(str.split, locks):
        found_place, _, found_inode = words[5].rpartition(":")
        if words[1] != "FLOCK" or found_inode != str(inode):
            continue
        if found_place == place:
            return int(words[4])
        other = other or int(words[4])
    return other if os.major(device) == 0 else None
