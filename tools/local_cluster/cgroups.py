"""The control groups of a cluster's nodes: made before a kubelet starts, removed after it.

A kubelet accepts a cgroup root only if it exists in every hierarchy. Both versions are handled:
version 1 has one hierarchy for each controller, version 2 a single one.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from .waiting import wait_until

MOUNT = Path("/sys/fs/cgroup")
REMOVE_SECONDS = 10.0
# In processes' worth.
CPU_WEIGHT = 8


def is_version_2(mount: Path = MOUNT) -> bool:
    return (mount / "cgroup.controllers").exists()


def hierarchies(mount: Path = MOUNT) -> list[Path]:
    """Return the root folder of every hierarchy."""
    if is_version_2(mount):
        return [mount]
    # A co-mounted controller is a symbolic link to its hierarchy, such as cpu -> cpu,cpuacct.
    return sorted(entry for entry in mount.iterdir() if entry.is_dir() and not entry.is_symlink())


def create(cgroup: str) -> None:
    """Make a cgroup such as `cluster/node1` in every hierarchy."""
    for root in hierarchies():
        folder = root
        for part in Path(cgroup).parts:
            parent, folder = folder, folder / part
            folder.mkdir(exist_ok=True)
            if is_version_2():
                _delegate_controllers(parent)
            else:
                _inherit_cpus(parent, folder)
    if is_version_2():
        _delegate_controllers(MOUNT / cgroup)
    _weigh(Path(cgroup).parts[0])


def _delegate_controllers(parent: Path) -> None:
    """Version 2: let the children of this cgroup be limited."""
    names = (parent / "cgroup.controllers").read_text().split()
    (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in names))


def _weigh(cgroup: str) -> None:
    """Give the cluster its share of the processors.

    Outside of any group each process counts as much as all pods of the cluster together; on a busy
    machine they would get next to nothing.
    """
    version_1, version_2 = MOUNT / "cpu" / cgroup / "cpu.shares", MOUNT / cgroup / "cpu.weight"
    if version_1.exists():
        version_1.write_text(str(CPU_WEIGHT * 1024))
    elif version_2.exists():
        version_2.write_text(str(CPU_WEIGHT * 100))


def _inherit_cpus(parent: Path, folder: Path) -> None:
    """Version 1: a new cpuset is empty, and no process can enter an empty one."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (folder / name).exists() and not (folder / name).read_text().strip():
            (folder / name).write_text((parent / name).read_text())


def remove(cgroup: str) -> None:
    """Remove a cgroup and all below it, in every hierarchy, once its processes are gone."""
    for root in hierarchies():
        wait_until(
            f"cgroup {root / cgroup} is removed",
            lambda folder=root / cgroup: _remove_tree(folder),  # type: ignore[misc]
            deadline_seconds=REMOVE_SECONDS,
        )


def _remove_tree(folder: Path) -> bool:
    """Try to remove; False while a cgroup is still busy with processes that are ending."""
    busy = False
    for parent, _, _ in os.walk(folder, topdown=False):
        try:
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(parent)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            busy = True
    return not busy
