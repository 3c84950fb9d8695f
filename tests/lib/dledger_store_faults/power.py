"""Power cuts for real: a file system on a loop device is shut down while a member writes to it.

`SHUTDOWN` stops ext4 and XFS at once. With the flag NOTHING_FLUSHED all that no sync had forced out
is gone; with JOURNAL_FLUSHED the journal goes out first, so that names and sizes survive whose data
does not. What a disk does with writes that it has taken is not modelled: a loop device keeps them.

To be run in a mount namespace of its own (`unshare --mount --propagation private`): no other
process can then hold the file system alive, and it is gone with the last process in there.
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
    """What a power cut needs and this machine has not, and how to get it."""
    if os.geteuid() != 0:
        return "it mounts file systems: run it as root"
    if not Path("/dev/loop-control").exists():
        return "there is no /dev/loop-control: it needs loop devices (modprobe loop)"
    if shutil.which(MKFS[file_system][0]) is None:
        package = {"ext4": "e2fsprogs", "xfs": "xfsprogs"}[file_system]
        return f"{MKFS[file_system][0]} is missing: apt-get install {package}"
    namespace = ["unshare", "--mount", "--propagation", "private", "true"]
    if shutil.which("unshare") is None or subprocess.run(namespace, check=False).returncode:
        return "unshare --mount does not work here: it needs CAP_SYS_ADMIN"
    with tempfile.TemporaryDirectory(dir=SCRATCH) as name:
        image = _make_image(Path(name), file_system)
        mount = ["mount", "-t", file_system, "-o", "loop", str(image), name]
        in_namespace = ["unshare", "--mount", "--propagation", "private", *mount]
        done = subprocess.run(in_namespace, capture_output=True, text=True, check=False)
    return f"{file_system} cannot be mounted: {done.stderr.strip()}" if done.returncode else None


def cut_power(file_system: str, flag: int, cuts: int, seed: int, *, synced: bool = True) -> Tally:
    """Cut the power so often; without `synced` nothing is ever forced out, and must get lost."""
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
                # What has lost something once tells no more.
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
        account.hear_all(child.lines(choices.randrange(2, 80)))
        time.sleep(choices.random() * 0.002)  # the power fails at any moment
        shut_down(at, flag)
    finally:
        account.hear_all(child.kill())


def shut_down(at: Path, flag: int) -> None:
    """Stop a file system; what was not flushed is gone, and every later write fails."""
    fd = os.open(at, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", flag))
    finally:
        os.close(fd)


def sync_nothing() -> None:
    """Let every sync of this process return at once, with nothing done."""
    os.fsync = os.fdatasync = lambda fd: None


def _do_nothing() -> None:
    pass


@contextlib.contextmanager
def mounted_image(file_system: str) -> Iterator[Path]:
    """A new file system, mounted."""
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
