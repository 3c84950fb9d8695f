"""Disks of nodes that can grow while a pod writes to them: loop devices over sparse files.

A disk is a block device in a local PersistentVolume. The kubelet makes its file system at the first
mount, and grows it once `volume_resizer.py` has grown the device. The file system is XFS, because
the kernel lets only a process with CAP_SYS_RESOURCE grow a mounted ext4, which a sandboxed root may
lack.
"""

from __future__ import annotations

from pathlib import Path

from .commands import run
from .errors import LocalClusterError
from .layout import NodeLayout

PACKAGES = {"xfsprogs": "mkfs.xfs"}
# mkfs.xfs does not make a smaller file system.
SIZE_MIN = 300 << 20


def files(each: NodeLayout) -> list[Path]:
    """Return the files of a node's disks that can grow."""
    return sorted((each.folder / "disks").glob("*.image"))


def file_of(each: NodeLayout, name: str) -> Path:
    """Return the file of a disk."""
    return each.folder / "disks" / f"{name}.image"


def device_of(file: Path) -> Path:
    """Return the link to a disk's device, whose number changes with each start of its node."""
    return file.with_suffix(".device")


def create(each: NodeLayout, name: str, size: int) -> Path:
    """Create the file of a new disk, and return it. The disk has no device yet."""
    if size < SIZE_MIN:
        raise LocalClusterError(
            f"the size is {size} bytes; a disk that grows has at least {SIZE_MIN >> 20}Mi"
        )
    file = file_of(each, name)
    if file.exists():
        raise LocalClusterError(f"{each.name} already has a disk {name!r}")
    file.parent.mkdir(exist_ok=True)
    with open(file, "xb") as content:
        content.truncate(size)
    return file


def attach(file: Path) -> None:
    """Give a disk its device, unless it has one."""
    devices = _devices(file) or [run("losetup", "--find", "--show", file).strip()]
    link = device_of(file)
    link.unlink(missing_ok=True)
    link.symlink_to(devices[0])


def detach(each: NodeLayout) -> None:
    """Free the devices of a node's disks; one that is still mounted is freed with its mount."""
    for file in files(each):
        for device in _devices(file):
            run("losetup", "--detach", device)
        device_of(file).unlink(missing_ok=True)


def _devices(file: Path) -> list[str]:
    return run("losetup", "--noheadings", "--output", "NAME", "--associated", file).split()
