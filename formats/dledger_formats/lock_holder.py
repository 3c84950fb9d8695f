"""Which process holds the lock of a file."""

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
    for words in map(str.split, locks):
        if words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(found.st_ino):
            return int(words[4])
    return None
