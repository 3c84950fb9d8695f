"""Real power cuts: a file system on a loop device is shut down while a member writes to it.

`SHUTDOWN` stops ext4 and XFS at once. With the flag NOTHING_FLUSHED everything that was not synced
is lost. With JOURNAL_FLUSHED the journal is flushed first, so that names and sizes survive whose
data does not. The cache of a disk is not modeled: a loop device keeps every write that it received.

Run it in a private mount namespace (`unshare --mount --propagation private`): then no other process
keeps the file system mounted, and it disappears with the last process in the namespace.
"""

import contextlib
import fcntl
import os
import random
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from dledger_store_faults.account import Account
from dledger_store_faults.children import storyteller
from dledger_store_faults.contents import LARGER_SEGMENTS, SCRATCH, SMALL_SEGMENTS
from dledger_store_faults.tally import Tally

SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32), EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN alike
JOURNAL_FLUSHED, NOTHING_FLUSHED = 1, 2
IMAGE_BYTES = {"ext4": 32 << 20, "xfs": 320 << 20}
MKFS = {"ext4": ["mkfs.ext4", "-qF"], "xfs": ["mkfs.xfs", "-qf"]}
CUTS_OF_A_STORE = 20
ENTRIES_MAX = 1500


def missing_for(file_system: str) -> str | None:
    """Return what this machine lacks for power cuts, and how to get it; None if nothing."""
    if os.geteuid() != 0:
        return "mounting file systems needs root"
    if not Path("/dev/loop-control").exists():
        return "/dev/loop-control does not exist: load the loop module (modprobe loop)"
    if shutil.which(MKFS[file_system][0]) is None:
        package = {"ext4": "e2fsprogs", "xfs": "xfsprogs"}[file_system]
        return f"{MKFS[file_system][0]} is missing: apt-get install {package}"
    namespace = ["unshare", "--mount", "--propagation", "private", "true"]
    if shutil.which("unshare") is None or subprocess.run(namespace, check=False).returncode:
        return "unshare --mount fails: it needs CAP_SYS_ADMIN"
    with tempfile.TemporaryDirectory(dir=SCRATCH) as name:
        image = _make_image(Path(name), file_system)
        mount = ["mount", "-t", file_system, "-o", "loop", str(image), name]
        in_namespace = ["unshare", "--mount", "--propagation", "private", *mount]
        done = subprocess.run(in_namespace, capture_output=True, text=True, check=False)
    return f"{file_system} cannot be mounted: {done.stderr.strip()}" if done.returncode else None


def cut_power(file_system: str, flag: int, cuts: int, seed: int, *, synced: bool = True) -> Tally:
    """Cut the power `cuts` times; with `synced` false, syncs do nothing and data must get lost."""
    choices, tally, began = random.Random(seed), Tally(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="power-", dir=SCRATCH) as name:
        top = Path(name)
        at = top / "mounted"
        at.mkdir()
        image = _make_image(top, file_system)
        account = Account(SMALL_SEGMENTS)
        for number in range(cuts):
            with _mounted(image, at):
                store = at / "store"
                known = tally.violations_total
                if number:
                    account.judge(store, tally)
                # A store that has lost data is of no further use.
                spoilt = tally.violations_total > known
                if number % CUTS_OF_A_STORE == 0 or len(account.terms) > ENTRIES_MAX or spoilt:
                    shutil.rmtree(store, ignore_errors=True)
                    account = Account(choices.choice([SMALL_SEGMENTS, LARGER_SEGMENTS]))
                _write_until_the_power_fails(at, account, flag, choices, synced=synced)
        with _mounted(image, at):
            account.judge(at / "store", tally)
    tally.seconds = time.monotonic() - began
    return tally


def _write_until_the_power_fails(
    at: Path, account: Account, flag: int, choices: random.Random, *, synced: bool
) -> None:
    child = storyteller(
        at / "store",
        account.sizes,
        choices.randrange(1 << 30),
        prepare=_do_nothing if synced else sync_nothing,
    )
    try:
        account.process_all(child.lines(choices.randrange(2, 80)))
        time.sleep(choices.random() * 0.002)  # the power fails at a random moment
        shut_down(at, flag)
    finally:
        account.process_all(child.kill())


def shut_down(at: Path, flag: int) -> None:
    """Shut a file system down: unflushed data is lost, and every later write fails."""
    fd = os.open(at, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", flag))
    finally:
        os.close(fd)


def sync_nothing() -> None:
    """Make every sync of this process do nothing."""
    os.fsync = os.fdatasync = lambda fd: None


def _do_nothing() -> None:
    pass


@contextlib.contextmanager
def mounted_image(file_system: str) -> Iterator[Path]:
    """Create and mount a new file system."""
    with tempfile.TemporaryDirectory(prefix="power-", dir=SCRATCH) as name:
        image, at = _make_image(Path(name), file_system), Path(name) / "mounted"
        at.mkdir()
        with _mounted(image, at):
            yield at


def _make_image(folder: Path, file_system: str) -> Path:
    image = folder / "image"
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES[file_system])
    subprocess.run([*MKFS[file_system], str(image)], check=True, stdout=subprocess.DEVNULL)
    return image


@contextlib.contextmanager
def _mounted(image: Path, at: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "loop", str(image), str(at)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(at)], check=True)
