"""The clusters that exist on this machine, and the slot of the address plan that each one has."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager

from . import cache, network
from .errors import LocalClusterError
from .layout import SLOTS, Layout, clusters_folder


def find(name: str) -> Layout | None:
    """Return a cluster that was brought up and has not been purged since."""
    folder = clusters_folder() / name
    try:
        known = json.loads((folder / "cluster.json").read_text())
        return Layout(name=name, slot=known["slot"], node_count=known["nodes"], folder=folder)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def clusters() -> list[Layout]:
    """Return all clusters that `find` would return."""
    folder = clusters_folder()
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    return [layout for name in names if (layout := find(name))]


def find_orphan(name: str) -> Layout | None:
    """Return a cluster whose folder was deleted while it ran; its node count is a guess."""
    slot = network.slot_of_bridge(name)
    if slot is None:
        return None
    return Layout(name=name, slot=slot, node_count=1, folder=clusters_folder() / name)


def choose_slot(wanted: int | None, taken: Iterable[int]) -> int:
    """Return the requested slot if it is free, or the lowest free slot if none is requested."""
    taken = set(taken)
    if wanted is not None:
        if wanted in taken:
            raise LocalClusterError(f"slot {wanted} belongs to another cluster")
        return wanted
    free = [slot for slot in range(SLOTS) if slot not in taken]
    if not free:
        raise LocalClusterError(f"all {SLOTS} slots belong to other clusters")
    return free[0]


def lock() -> AbstractContextManager[None]:
    """Lock the set of clusters, to read and change it."""
    return cache.lock(clusters_folder() / ".lock", "the list of clusters")
