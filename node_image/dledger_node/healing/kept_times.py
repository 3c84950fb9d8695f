"""When a data file was last written. Retention counts the age of a segment's entries from there.

Mending writes no new entry, so it keeps that time. Otherwise a mended segment, and all segments
after it, would stay for the whole retention period again.
"""

import os
from pathlib import Path


def written_ns(path: Path) -> int | None:
    """Return when a data file was last written; None if that is not known.

    The entries of a missing file were written before those of the next file, so its time counts.
    Raises OSError.
    """
    names = sorted(name for name in os.listdir(path.parent) if name >= path.name)
    return (path.parent / names[0]).stat().st_mtime_ns if names else None


def restore(fd: int, time_ns: int | None) -> None:
    """Set the time of the last write to an open file; it is durable once the file is synced."""
    if time_ns is not None:
        os.utime(fd, ns=(time_ns, time_ns))
