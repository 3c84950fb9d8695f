"""Small disks for nodes: volumes that can really fill up, unlike folders on a shared disk.

A disk is a file with a file system in it, mounted inside its node and available to pods as a local
PersistentVolume. It stays with its node, and is mounted again when the node is started. A disk that
can grow is a device instead (`growing_disks.py`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from . import growing_disks
from .commands import run
from .control_plane import VOLUME_OWNER
from .errors import LocalClusterError
from .layout import NodeLayout
from .volume_resizer import FILE_ANNOTATION

DEFAULT_CLASS = "limited"
# A smaller ext4 has no journal and almost no space.
SIZE_MIN = 8 << 20
_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def parse_size(text: str) -> int:
    """Return the bytes of a Kubernetes quantity such as 64Mi."""
    found = re.fullmatch(r"([1-9]\d*)(Ki|Mi|Gi)", text)
    if not found:
        raise LocalClusterError(f"the size is {text!r}; it must be a number with Ki, Mi or Gi")
    size = int(found[1]) * _UNITS[found[2]]
    if size < SIZE_MIN:
        raise LocalClusterError(f"the size is {text}; it must be at least {SIZE_MIN >> 20}Mi")
    return size


def mounts(each: NodeLayout) -> list[tuple[Path, Path]]:
    """Return the file and the mount point of each disk of a node."""
    folder = each.folder / "disks"
    return [(file, file.with_suffix("")) for file in sorted(folder.glob("*.ext4"))]


def create(each: NodeLayout, name: str, size: int) -> tuple[Path, Path]:
    """Create the file of a new disk; return the file and its mount point."""
    file = each.folder / "disks" / f"{name}.ext4"
    if file.exists():
        raise LocalClusterError(f"{each.name} already has a disk {name!r}")
    file.parent.mkdir(exist_ok=True)
    file.with_suffix("").mkdir(exist_ok=True)
    partial = file.with_suffix(".partial")
    with open(partial, "wb") as content:
        content.truncate(size)
    owner = f"root_owner={VOLUME_OWNER}:{VOLUME_OWNER}"
    # Without blocks reserved for root, an unprivileged pod can fill the whole disk.
    run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", owner, partial)
    partial.rename(file)
    return file, file.with_suffix("")


def manifests(
    each: NodeLayout, name: str, size: int, storage_class: str, *, grows: bool = False
) -> str:
    """Return the StorageClass and the PersistentVolume, as JSON for kubectl."""
    class_object = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": storage_class},
        "provisioner": "kubernetes.io/no-provisioner",
        # A claim waits for its pod, whose node decides which disk the claim gets.
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": grows,
    }
    on_this_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [each.name]}
    volume: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{each.name}-{name}"},
        "spec": {
            "capacity": {"storage": str(size)},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": storage_class,
            "local": {"path": str(each.folder / "disks" / name)},
            "nodeAffinity": {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [on_this_node]}]}
            },
        },
    }
    if grows:
        file = growing_disks.file_of(each, name)
        volume["metadata"]["annotations"] = {FILE_ANNOTATION: str(file)}
        volume["spec"]["local"] = {"path": str(growing_disks.device_of(file)), "fsType": "xfs"}
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [class_object, volume]})
