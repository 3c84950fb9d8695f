"""Volumes of the local cluster that can grow, and the moment when each has grown."""

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from dledger_e2e.group import Group
from dledger_formats.quantities import quantity_bytes
from tools.local_cluster import node
from tools.local_cluster.cluster import Cluster

MOUNTS = Path("var/lib/kubelet/plugins/kubernetes.io/local-volume/mounts")
"""The kubelet's folder of mounted local volumes, inside a node's root."""
POLL_S = 0.01


def mounted_volumes(group: Group, cluster: Cluster) -> dict[str, Path]:
    """Return where the machine sees the mounted file system of each pod's volume."""
    layout, found = cluster.layout, {}
    claims = {
        each["metadata"]["name"]: each["spec"]["volumeName"] for each in group.get("pvc")["items"]
    }
    for pod in group.pods():
        init = node.init_process(layout, layout.node(group.node_number_of(pod)))
        assert init is not None, f"the node of {pod} is not running"
        found[pod] = Path(f"/proc/{init.pid}/root") / MOUNTS / claims[f"data-{pod}"]
    return found


def capacities_bytes(group: Group) -> list[int]:
    """Return the size that Kubernetes reports for each volume of a group."""
    claims = group.get("pvc")["items"]
    return [quantity_bytes(each["status"]["capacity"]["storage"]) for each in claims]


class GrowthWatch:
    """Notes when the file system of each volume becomes larger, until the block ends."""

    def __init__(self, volumes: Mapping[str, Path]) -> None:
        self._volumes = dict(volumes)
        self._before = {pod: _size_bytes(volume) for pod, volume in volumes.items()}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.grown_at_s: dict[str, float] = {}
        """The time, since the epoch, at which each pod's volume was first seen larger."""

    def __enter__(self) -> Self:
        """Start to watch."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop watching."""
        self._stopping.set()
        self._thread.join()

    def _watch(self) -> None:
        left = dict(self._before)
        while left and not self._stopping.wait(POLL_S):
            for pod, before in list(left.items()):
                if _size_bytes(self._volumes[pod]) > before:
                    self.grown_at_s[pod] = time.time()
                    del left[pod]


def _size_bytes(volume: Path) -> int:
    found = os.statvfs(volume)
    return found.f_blocks * found.f_frsize
