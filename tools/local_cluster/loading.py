"""Import images into the nodes' container runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import containerd, images, node, oci_layout
from .commands import run, show
from .layout import Layout, NodeLayout


def load(layout: Layout, image: str, nodes: Sequence[NodeLayout]) -> None:
    """Import an image, given by name or by an archive's path, into the running nodes."""
    running = [each for each in nodes if node.is_running(layout, each)]
    if off := [each.name for each in nodes if each not in running]:
        show(f"{image} was not loaded into {', '.join(off)}, which are off")
    sockets = [each.containerd_socket for each in running]
    archive = Path(image)
    with ThreadPoolExecutor() as threads:
        if archive.is_file():
            import_archive = ("images", "import", archive)
            list(threads.map(lambda socket: run(*containerd.ctr(socket, *import_archive)), sockets))
            return
        with images.layout_lock(shared=True):
            found = oci_layout.find(images.layout_folder(), image)
            list(threads.map(lambda socket: containerd.import_built(socket, found), sockets))


def name_also(layout: Layout, image: str, other: str, nodes: Sequence[NodeLayout]) -> None:
    """Give an additional name to an image in the running nodes."""
    for each in nodes:
        if node.is_running(layout, each):
            run(*containerd.ctr(each.containerd_socket, "images", "tag", "--force", image, other))
