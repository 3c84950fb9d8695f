"""Which process holds the lock of a file, by the lines of /proc/locks."""

import fcntl
import os
from pathlib import Path

import pytest

from dledger_formats.lock_holder import holder_among, holder_of

LOCKS = (
    "1: FLOCK  ADVISORY  WRITE 101 fe:00:12 0 EOF",
    "2: FLOCK  ADVISORY  WRITE 102 103:0a:12 0 EOF",
    "2: -> FLOCK  ADVISORY  WRITE 103 103:0a:12 0 EOF",
    "3: POSIX  ADVISORY  WRITE 104 103:0a:13 0 EOF",
)


@pytest.mark.parametrize(
    ("device", "inode", "holder"),
    [
        (os.makedev(0xFE, 0), 12, 101),
        (os.makedev(0x103, 0x0A), 12, 102),
        (os.makedev(0, 0x2B), 12, 101),
        (os.makedev(0xFE, 0x10), 12, None),
        (os.makedev(0x103, 0x0A), 13, None),
        (os.makedev(0xFE, 0), 2, None),
    ],
)
def test_a_lock_of_the_same_inode_elsewhere_counts_only_for_a_file_on_an_anonymous_device(
    device: int, inode: int, holder: int | None
) -> None:
    assert holder_among(LOCKS, device, inode) == holder


def test_the_holder_of_a_locked_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert holder_of(path) == os.getpid()
