"""The machine under the clusters: whether it can run them, and the mount points on it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import sys
from pathlib import Path

from . import cgroups
from .layout import clusters_folder

# Bits of the capability mask in /proc/self/status (linux/capability.h).
_CAP_NET_ADMIN = 12
_CAP_SYS_ADMIN = 21
_CONTROLLERS = ("cpu", "memory", "pids")
# In its mode nftables, kube-proxy refuses to start with an older one.
_LINUX_MIN = (5, 13)


def why_not() -> str | None:
    """Return why this machine cannot run a cluster; None if no reason is known."""
    if reason := why_no_networks():
        return reason
    if platform.machine() not in ("x86_64", "aarch64"):
        return f"a local cluster needs x86_64 or aarch64, this is {platform.machine()}"
    return _why_too_old(platform.release()) or _why_no_cgroups()


def why_no_networks() -> str | None:
    """Return why this machine cannot create network namespaces; None if no reason is known."""
    if sys.platform != "linux":
        return f"Linux is required, this is {sys.platform}"
    if os.geteuid() != 0:
        return "root is required for namespaces, mounts and network links"
    capabilities = _effective_capabilities()
    for name, bit in (("NET_ADMIN", _CAP_NET_ADMIN), ("SYS_ADMIN", _CAP_SYS_ADMIN)):
        if not capabilities >> bit & 1:
            return f"root lacks the capability {name}, as in an unprivileged container"
    return None


def _effective_capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _why_too_old(release: str) -> str | None:
    """Return why this release of Linux, as in 6.1.0-30-amd64, is too old; None if it is not."""
    found = re.match(r"(\d+)\.(\d+)", release)
    if found is None or (int(found[1]), int(found[2])) >= _LINUX_MIN:
        return None
    needed = ".".join(map(str, _LINUX_MIN))
    return f"kube-proxy needs Linux {needed} or newer for nftables, this is {release}"


def _why_no_cgroups() -> str | None:
    root = cgroups.MOUNT
    if cgroups.is_version_2():
        have = set((root / "cgroup.controllers").read_text().split())
    else:
        have = {folder.name for folder in root.iterdir()} if root.is_dir() else set()
    lacking = [name for name in _CONTROLLERS if name not in have]
    if lacking:
        return f"no cgroup controllers {', '.join(lacking)} below {root}"
    if not os.access(root, os.W_OK) or _is_read_only(root):
        return f"{root} is read-only"
    return None


def _is_read_only(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _made_list() -> Path:
    return clusters_folder() / "mount-points.json"


def make_mount_points(points: list[Path]) -> None:
    """Create the folders that nodes mount over, and record which did not exist before."""
    made = _read_made()
    for point in points:
        missing = [folder for folder in (point, *point.parents) if not folder.exists()]
        made.extend(map(str, missing))
        point.mkdir(parents=True, exist_ok=True)
    clusters_folder().mkdir(parents=True, exist_ok=True)
    _made_list().write_text(json.dumps(sorted(set(made))))


def remove_mount_points() -> None:
    """Remove the folders that were created, if they are empty.

    Call this only if no cluster is left: removing a folder also removes the mounts over it in other
    namespaces.
    """
    for folder in sorted(_read_made(), reverse=True):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
    _made_list().unlink(missing_ok=True)


def _read_made() -> list[str]:
    try:
        return list(json.loads(_made_list().read_text()))
    except (OSError, ValueError):
        return []
