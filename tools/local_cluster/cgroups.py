"""The control groups of a cluster: created before its programs start, removed after they end.

Each node has one for its pods, with a part for its network agents, and the control plane has one
for its programs. A kubelet accepts a cgroup root only if it exists in every hierarchy. Both cgroup
versions are supported: version 1 has one hierarchy per controller, version 2 a single one.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from .waiting import wait_until

MOUNT = Path("/sys/fs/cgroup")
REMOVE_SECONDS = 10.0
# The cluster's CPU weight, as a multiple of one process outside of any cgroup.
CLUSTER_WEIGHT = 8


def is_version_2() -> bool:
    return (MOUNT / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """Return the root folder of every hierarchy."""
    if is_version_2():
        return [MOUNT]
    # A symbolic link, such as cpu -> cpu,cpuacct, only names another hierarchy.
    return sorted(entry for entry in MOUNT.iterdir() if entry.is_dir() and not entry.is_symlink())


def create(cgroup: str) -> None:
    """Create a cgroup such as `cluster/node1` in every hierarchy, for a kubelet."""
    _make(cgroup)
    if is_version_2():
        _delegate_controllers(MOUNT / cgroup)


def create_for_programs(cgroup: str, cpu_weight: float) -> None:
    """Create a cgroup for programs to enter; `cpu_weight` is a multiple of the default."""
    _make(cgroup)
    _weigh(cgroup, cpu_weight)


def enter(cgroup: str, pid: int) -> None:
    """Give a process its part of a cgroup's share of the CPU."""
    _processes(cgroup).write_text(str(pid))


def entering(cgroup: str, command: list[str]) -> list[str]:
    """Return a command that enters a cgroup and then becomes `command`."""
    file = str(_processes(cgroup))
    return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', file, *command]


def _processes(cgroup: str) -> Path:
    """Return the file whose processes share the CPU weight of a cgroup."""
    root = MOUNT if is_version_2() else MOUNT / "cpu"
    return root / cgroup / "cgroup.procs"


def _make(cgroup: str) -> None:
    for root in hierarchies():
        folder = root
        for part in Path(cgroup).parts:
            parent, folder = folder, folder / part
            folder.mkdir(exist_ok=True)
            if is_version_2():
                _delegate_controllers(parent)
            else:
                _inherit_cpus(parent, folder)
    # By default, one process outside of any cgroup weighs as much as the whole cluster, so on a
    # busy machine the cluster would get almost no CPU time.
    _weigh(Path(cgroup).parts[0], CLUSTER_WEIGHT)


def _delegate_controllers(parent: Path) -> None:
    """Enable all controllers for the children of this cgroup (version 2)."""
    names = (parent / "cgroup.controllers").read_text().split()
    (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in names))


def _weigh(cgroup: str, cpu_weight: float) -> None:
    """Set a cgroup's CPU weight, as a multiple of the default."""
    version_1, version_2 = MOUNT / "cpu" / cgroup / "cpu.shares", MOUNT / cgroup / "cpu.weight"
    if version_1.exists():
        version_1.write_text(str(round(cpu_weight * 1024)))
    elif version_2.exists():
        version_2.write_text(str(round(cpu_weight * 100)))


def _inherit_cpus(parent: Path, folder: Path) -> None:
    """Copy the parent's CPUs (version 1): no process can enter a new, empty cpuset."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (folder / name).exists() and not (folder / name).read_text().strip():
            (folder / name).write_text((parent / name).read_text())


def remove(cgroup: str) -> None:
    """Remove a cgroup and its descendants in every hierarchy, once their processes are gone."""
    for root in hierarchies():
        wait_until(
            f"cgroup {root / cgroup} is removed",
            lambda folder=root / cgroup: _remove_tree(folder),  # type: ignore[misc]
            deadline_seconds=REMOVE_SECONDS,
        )


def _remove_tree(folder: Path) -> bool:
    """Try to remove a tree; return False while ending processes keep a cgroup busy."""
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
