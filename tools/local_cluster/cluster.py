"""The interface to a cluster: up, down, node failures, images and kubectl.

The end-to-end tests, the demo and the command line use it.
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
    growing_disks,
    host,
    image_store,
    loading,
    network,
    node,
    packages,
    pki,
    policy_agent,
    processes,
    programs,
    readiness,
    registry,
)
from .commands import run, show
from .errors import LocalClusterError
from .layout import (
    DEFAULT_NAME,
    DIRECT_ENVIRONMENT,
    Layout,
    NodeLayout,
    check_name,
    clusters_folder,
)
from .pause_image import pause_archive

DEFAULT_NODE_COUNT = 3


class Cluster:
    """One cluster, running or not. After an interruption, every method may be called again."""

    def __init__(
        self, name: str = DEFAULT_NAME, *, slot: int | None = None, node_count: int | None = None
    ) -> None:
        check_name(name)
        self.name = name
        self._wanted_slot = slot
        self._wanted_nodes = node_count

    @property
    def layout(self) -> Layout:
        found = registry.find(self.name)
        if found is None:
            raise LocalClusterError(f"cluster {self.name!r} does not exist; bring it up first")
        return found

    @property
    def kubeconfig(self) -> Path:
        return self.layout.kubeconfig

    @functools.cached_property
    def programs(self) -> Path:
        """The folder of kubectl, helm and the other programs; builds them if not cached."""
        return programs.ensure()

    @property
    def kubectl_program(self) -> Path:
        return self.programs / "kubectl"

    @property
    def helm_program(self) -> Path:
        return self.programs / "helm"

    # -- up and down

    def up(self) -> None:
        """Start or repair the cluster; return when all its nodes are Ready.

        If this fails or is interrupted, everything that it started is stopped again. Programs that
        ran before are not stopped.
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
                show(f"{self.name}: start failed, stopping what was started")
                self._stop(layout, keep=ran_before)
                raise

    def _supplies(self, store: Path | None) -> node.Supplies:
        archive = pause_archive()
        return node.Supplies(
            programs=self.programs,
            policy_agent=policy_agent.ensure(),
            pause_archive=archive,
            image_store=store,
        )

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
        if any(growing_disks.files(each) for each in layout.nodes):
            control_plane.ensure_started(layout, control_plane.volume_resizer(layout))
        show(f"{self.name}: {layout.node_count} nodes ready after {time.monotonic() - began:.1f} s")

    def down(self, *, purge: bool = False) -> None:
        """Stop the cluster; with `purge`, also delete its state, including volumes and images."""
        with self._lock():
            layout = registry.find(self.name) or registry.find_orphan(self.name)
            if layout is not None:
                self._stop(layout)
            if purge:
                self._purge()

    def _purge(self) -> None:
        # Rename first: an interrupted deletion must not leave a damaged cluster under this name.
        folder = clusters_folder() / self.name
        doomed = clusters_folder() / f".{self.name}.purging"
        if folder.exists():
            folder.rename(doomed)
        if doomed.exists():
            shutil.rmtree(doomed)
        self._lock_file.unlink(missing_ok=True)
        with registry.lock():
            if not registry.clusters():
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
        # Stop processes without a record too. A node's process 1 ignores SIGTERM.
        processes.stop(processes.owned_by(layout.folder), stop_seconds=1)
        cgroups.remove(layout.cgroup)
        network.remove(layout)

    def _claim(self) -> Layout:
        """Record the cluster with a slot of its own."""
        with registry.lock():
            known = registry.find(self.name)
            others = [each.slot for each in registry.clusters() if each.name != self.name]
            nodes = self._wanted_nodes or (known.node_count if known else DEFAULT_NODE_COUNT)
            if known and known.node_count > nodes:
                raise LocalClusterError(
                    f"{self.name} has {known.node_count} nodes; to get fewer, first run "
                    "`down --purge`"
                )
            if known and self._wanted_slot not in (None, known.slot):
                raise LocalClusterError(
                    f"{self.name} already has slot {known.slot}; to move it, first run "
                    "`down --purge`"
                )
            slot = known.slot if known else registry.choose_slot(self._wanted_slot, others)
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
        """Return the state of programs and nodes; `healthy` is true if all run and are Ready."""
        layout = registry.find(self.name)
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

    # -- nodes, numbered from 1

    def stop_node(self, number: int) -> None:
        """Stop a node abruptly, like a power cut. The cluster notices within 20 s."""
        with self._lock():
            layout = self.layout
            node.stop(layout, _member(layout, number))

    def start_node(self, number: int) -> None:
        """Start a node again; return when it is Ready."""
        supplies = self._supplies(None)
        with self._lock():
            layout = self.layout
            each = _member(layout, number)
            node.start(layout, each, supplies)
            readiness.wait_for_nodes(layout, [each], self.kubectl)

    def cut_link(self, number: int) -> None:
        """Cut a node off the network: its pods keep running, but are unreachable."""
        network.set_node_link(_member(self.layout, number), up=False)

    def restore_link(self, number: int) -> None:
        network.set_node_link(_member(self.layout, number), up=True)

    def node_command(self, number: int, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside a node: with its network, mounts and processes."""
        layout = self.layout
        inner = node.init_process(layout, _member(layout, number))
        if inner is None:
            raise LocalClusterError(f"node{number} is not running")
        enter = ["nsenter", "--target", str(inner.pid), "--mount", "--net", "--pid", "--ipc"]
        return subprocess.run([*enter, *command], capture_output=True, text=True, check=False)

    def add_disk(
        self,
        number: int,
        size: str,
        *,
        name: str,
        storage_class: str = disks.DEFAULT_CLASS,
        grows: bool = False,
    ) -> None:
        """Add a disk of this size, such as 64Mi, to a node, and a PersistentVolume for it. With
        `grows`, its claims may ask for more, as their storage class says.
        """
        if grows:
            packages.ensure(growing_disks.PACKAGES)
        with self._lock():
            layout = self.layout
            each = _member(layout, number)
            bytes_wanted = disks.parse_size(size)
            if grows:
                file = growing_disks.create(each, name, bytes_wanted)
                if node.is_running(layout, each):
                    growing_disks.attach(file)
                control_plane.ensure_started(layout, control_plane.volume_resizer(layout))
            else:
                self._add_fixed_disk(layout, each, name, bytes_wanted)
            manifests = disks.manifests(each, name, bytes_wanted, storage_class, grows=grows)
            self.kubectl("apply", "--server-side", "--filename=-", input_text=manifests)

    def _add_fixed_disk(self, layout: Layout, each: NodeLayout, name: str, size: int) -> None:
        file, mount_point = disks.create(each, name, size)
        if node.is_running(layout, each):
            mount = ("mount", "-o", "loop", str(file), str(mount_point))
            done = self.node_command(each.number, *mount)
            if done.returncode != 0:
                raise LocalClusterError(f"cannot mount {file}: {done.stderr.strip()}")

    # -- images

    def load(self, image: str | Path, *, nodes: Iterable[int] | None = None) -> None:
        """Import an image, given by name or as an OCI archive, into the running nodes.

        Only the blobs that a node lacks are transferred.
        """
        layout = self.layout
        chosen = layout.nodes if nodes is None else [_member(layout, number) for number in nodes]
        loading.load(layout, str(image), chosen)

    def name_also(self, image: str, other: str) -> None:
        """Give an additional name to an image in the running nodes."""
        loading.name_also(self.layout, image, other, self.layout.nodes)

    # -- programs

    def kubectl(
        self,
        *arguments: str,
        input_text: str | None = None,
        timeout_seconds: float | None = None,
    ) -> str:
        """Run kubectl as administrator; return its output. Raises LocalClusterError if it fails."""
        return run(
            self.kubectl_program,
            f"--kubeconfig={self.kubeconfig}",
            *arguments,
            input_text=input_text,
            environment=DIRECT_ENVIRONMENT,
            timeout_seconds=timeout_seconds,
        )

    def helm(self, *arguments: str, timeout_seconds: float | None = None) -> str:
        """Run helm as administrator; return its output. Raises LocalClusterError if it fails."""
        return run(
            self.helm_program,
            f"--kubeconfig={self.kubeconfig}",
            *arguments,
            environment=DIRECT_ENVIRONMENT,
            timeout_seconds=timeout_seconds,
        )


def _member(layout: Layout, number: int) -> NodeLayout:
    if not 1 <= number <= layout.node_count:
        raise LocalClusterError(f"{layout.name} has nodes 1 to {layout.node_count}, not {number}")
    return layout.node(number)
