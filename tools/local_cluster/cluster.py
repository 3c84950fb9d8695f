"""A cluster as its users see it: up, down, node loss, images, kubectl.

This is the interface for the end-to-end tests and the demo; the command line is a thin layer
over it.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from . import (
    cache,
    cgroups,
    control_plane,
    disks,
    host,
    image_store,
    loading,
    network,
    node,
    packages,
    pki,
    processes,
    programs,
    readiness,
)
from .commands import run, show
from .errors import LocalClusterError
from .layout import (
    DEFAULT_NAME,
    DIRECT_ENVIRONMENT,
    SLOTS,
    Layout,
    NodeLayout,
    check_name,
    clusters_folder,
)
from .pause_image import pause_archive

DEFAULT_NODE_COUNT = 3


def remembered(name: str) -> Layout | None:
    """Return a cluster that was brought up before and not purged since."""
    folder = clusters_folder() / name
    try:
        known = json.loads((folder / "cluster.json").read_text())
        return Layout(name=name, slot=known["slot"], node_count=known["nodes"], folder=folder)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def all_remembered() -> list[Layout]:
    folder = clusters_folder()
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    return [layout for name in names if (layout := remembered(name))]


def forgotten(name: str) -> Layout | None:
    """Return a cluster whose folder was deleted while it ran, as far as it can be told."""
    slot = network.slot_of_bridge(name)
    if slot is None:
        return None
    return Layout(name=name, slot=slot, node_count=1, folder=clusters_folder() / name)


def choose_slot(wanted: int | None, taken: Iterable[int]) -> int:
    """Return the wanted slot if it is free, or the lowest free one if none is wanted."""
    taken = set(taken)
    if wanted is not None:
        if wanted in taken:
            raise LocalClusterError(f"slot {wanted} belongs to another cluster")
        return wanted
    free = [slot for slot in range(SLOTS) if slot not in taken]
    if not free:
        raise LocalClusterError(f"all {SLOTS} slots belong to other clusters")
    return free[0]


class Cluster:
    """One cluster, running or not. Every method may be called again after it was interrupted."""

    def __init__(
        self, name: str = DEFAULT_NAME, *, slot: int | None = None, node_count: int | None = None
    ) -> None:
        check_name(name)
        self.name = name
        self._wanted_slot = slot
        self._wanted_nodes = node_count

    @property
    def layout(self) -> Layout:
        found = remembered(self.name)
        if found is None:
            raise LocalClusterError(f"there is no cluster {self.name!r}: bring it up first")
        return found

    @property
    def kubeconfig(self) -> Path:
        return self.layout.kubeconfig

    @functools.cached_property
    def programs(self) -> Path:
        """The folder of kubectl, helm and the rest, built first if the cache has them not."""
        return programs.ensure()

    @property
    def kubectl_program(self) -> Path:
        return self.programs / "kubectl"

    @property
    def helm_program(self) -> Path:
        return self.programs / "helm"

    # -- up and down

    def up(self) -> None:
        """Bring the cluster up, or repair it; return when all its nodes are Ready.

        What this call has started is stopped again if it fails or is interrupted; what ran
        before stays.
        """
        if reason := host.why_not():
            raise LocalClusterError(reason)
        packages.ensure(packages.FOR_CLUSTER)
        supplies = self._supplies(image_store.ensure())
        with self._lock():
            layout = self._claim()
            ran_before = frozenset(self._running(layout))
            try:
                self._start_all(layout, supplies)
            except BaseException:
                show("that did not work: stopping what was started")
                self._stop(layout, keep=ran_before)
                raise

    def _supplies(self, store: Path | None) -> node.Supplies:
        archive = pause_archive()
        return node.Supplies(programs=self.programs, pause_archive=archive, image_store=store)

    def _start_all(self, layout: Layout, supplies: node.Supplies) -> None:
        began = time.monotonic()
        pki.ensure_control_plane(layout)
        network.ensure_kernel_modules()
        network.ensure_bridge(layout)
        control_plane.start(layout, supplies.programs)
        for each in layout.nodes:
            node.start(layout, each, supplies)
        control_plane.wait_for_clients(layout, supplies.programs)
        readiness.wait_for_nodes(layout, layout.nodes, self.kubectl)
        show(f"{self.name}: {layout.node_count} nodes ready after {time.monotonic() - began:.1f} s")

    def down(self, *, purge: bool = False) -> None:
        """Stop everything; with `purge` also forget everything, volumes and images included."""
        with self._lock():
            layout = remembered(self.name) or forgotten(self.name)
            if layout is not None:
                self._stop(layout)
            if purge:
                self._forget()

    def _forget(self) -> None:
        # Under another name first: what an interruption leaves there is no cluster any more.
        folder = clusters_folder() / self.name
        doomed = clusters_folder() / f".{self.name}.purging"
        if folder.exists():
            folder.rename(doomed)
        if doomed.exists():
            shutil.rmtree(doomed)
        self._lock_file.unlink(missing_ok=True)
        with _all_clusters_lock():
            if not all_remembered():
                host.remove_mount_points()

    def _stop(self, layout: Layout, *, keep: frozenset[str] = frozenset()) -> None:
        for each in layout.nodes:
            if each.name not in keep:
                node.stop(layout, each)
        if keep:
            records = [control_plane.record(layout, name) for name in control_plane.NAMES]
            processes.stop_recorded(each for each in records if each.stem not in keep)
            return
        control_plane.down(layout)
        # Whatever lost its record; a node among these does not listen to a polite request.
        processes.stop(processes.owned_by(layout.folder), stop_seconds=1)
        cgroups.remove(layout.cgroup)
        network.remove(layout)

    def _claim(self) -> Layout:
        """Remember the cluster under a slot of its own."""
        with _all_clusters_lock():
            known = remembered(self.name)
            others = [each.slot for each in all_remembered() if each.name != self.name]
            nodes = self._wanted_nodes or (known.node_count if known else DEFAULT_NODE_COUNT)
            if known and known.node_count > nodes:
                raise LocalClusterError(
                    f"{self.name} has {known.node_count} nodes; fewer take a `down --purge` first"
                )
            if known and self._wanted_slot not in (None, known.slot):
                raise LocalClusterError(f"{self.name} has slot {known.slot} until a `down --purge`")
            slot = known.slot if known else choose_slot(self._wanted_slot, others)
            folder = clusters_folder() / self.name
            layout = Layout(name=self.name, slot=slot, node_count=nodes, folder=folder)
            folder.mkdir(parents=True, exist_ok=True)
            layout.description.write_text(json.dumps({"slot": slot, "nodes": nodes}))
            host.make_mount_points(node.mount_points(layout))
            return layout

    def _lock(self) -> AbstractContextManager[None]:
        return cache.lock(self._lock_file, f"cluster {self.name}")

    @property
    def _lock_file(self) -> Path:
        return clusters_folder() / f".{self.name}.lock"

    # -- state

    def _running(self, layout: Layout) -> list[str]:
        control = [name for name, runs in control_plane.running(layout).items() if runs]
        return control + [each.name for each in layout.nodes if node.is_running(layout, each)]

    def status(self) -> dict[str, Any]:
        """Return what runs and which nodes are Ready; `healthy` is true if nothing is amiss."""
        layout = remembered(self.name)
        if layout is None:
            return {"name": self.name, "exists": False, "healthy": False}
        control = control_plane.running(layout)
        objects = readiness.node_objects(self.kubectl) if control["kube-apiserver"] else {}
        nodes = {}
        for each in layout.nodes:
            on = node.is_running(layout, each)
            since = readiness.switched_on_at(layout, each)
            ready = on and readiness.is_ready(objects.get(each.name), since)
            nodes[each.name] = {"on": on, "ready": ready, "address": each.address}
        return {
            "name": self.name,
            "exists": True,
            "healthy": all(control.values()) and all(each["ready"] for each in nodes.values()),
            "slot": layout.slot,
            "api": layout.api_url,
            "kubeconfig": str(layout.kubeconfig),
            "folder": str(layout.folder),
            "control_plane": control,
            "nodes": nodes,
        }

    # -- nodes, by their numbers from 1

    def stop_node(self, number: int) -> None:
        """Cut a node's power. The cluster takes up to 20 s to notice."""
        with self._lock():
            layout = self.layout
            node.stop(layout, _member(layout, number))

    def start_node(self, number: int) -> None:
        """Switch a node on again; return when it is Ready."""
        supplies = self._supplies(None)
        with self._lock():
            layout = self.layout
            each = _member(layout, number)
            node.start(layout, each, supplies)
            readiness.wait_for_nodes(layout, [each], self.kubectl)

    def cut_link(self, number: int) -> None:
        """Pull a node's network cable: its pods go on running, but nobody hears of them."""
        network.set_node_link(_member(self.layout, number), up=False)

    def restore_link(self, number: int) -> None:
        network.set_node_link(_member(self.layout, number), up=True)

    def node_command(self, number: int, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside a node: its network, its mounts, its processes."""
        layout = self.layout
        inner = node.init_process(layout, _member(layout, number))
        if inner is None:
            raise LocalClusterError(f"node{number} is off")
        enter = ["nsenter", "--target", str(inner.pid), "--mount", "--net", "--pid", "--ipc"]
        return subprocess.run([*enter, *command], capture_output=True, text=True, check=False)

    def add_disk(
        self, number: int, size: str, *, name: str, storage_class: str = disks.DEFAULT_CLASS
    ) -> None:
        """Give a node a disk of this size, such as 64Mi, and offer it as a PersistentVolume."""
        with self._lock():
            layout = self.layout
            each = _member(layout, number)
            bytes_wanted = disks.parse_size(size)
            file, mount_point = disks.create(each, name, bytes_wanted)
            if node.is_running(layout, each):
                done = self.node_command(number, "mount", "-o", "loop", str(file), str(mount_point))
                if done.returncode != 0:
                    raise LocalClusterError(f"{file} cannot be mounted: {done.stderr.strip()}")
            manifests = disks.manifests(each, name, bytes_wanted, storage_class)
            self.kubectl("apply", "--server-side", "--filename=-", input_text=manifests)

    # -- images

    def load(self, image: str | Path, *, nodes: Iterable[int] | None = None) -> None:
        """Import an image into nodes that are on: one built here, by name, or an OCI archive.

        Only what a node lacks is transferred; an image that it has already costs next to nothing.
        """
        layout = self.layout
        chosen = layout.nodes if nodes is None else [_member(layout, number) for number in nodes]
        loading.load(layout, str(image), chosen)

    # -- programs

    def kubectl(
        self,
        *arguments: str,
        input_text: str | None = None,
        timeout_seconds: float | None = None,
    ) -> str:
        """Run kubectl as administrator; return what it prints, raise if it fails."""
        return run(
            self.kubectl_program,
            f"--kubeconfig={self.kubeconfig}",
            *arguments,
            input_text=input_text,
            environment=DIRECT_ENVIRONMENT,
            timeout_seconds=timeout_seconds,
        )

    def helm(self, *arguments: str, timeout_seconds: float | None = None) -> str:
        """Run helm as administrator; return what it prints, raise if it fails."""
        return run(
            self.helm_program,
            f"--kubeconfig={self.kubeconfig}",
            *arguments,
            environment=DIRECT_ENVIRONMENT,
            timeout_seconds=timeout_seconds,
        )


def _all_clusters_lock() -> AbstractContextManager[None]:
    return cache.lock(clusters_folder() / ".lock", "the list of clusters")


def _member(layout: Layout, number: int) -> NodeLayout:
    if not 1 <= number <= layout.node_count:
        raise LocalClusterError(f"{layout.name} has nodes 1 to {layout.node_count}, not {number}")
    return layout.node(number)
