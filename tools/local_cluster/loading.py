"""Bringing images into the nodes' container runtimes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import images, node, oci_layout
from .commands import run, show
from .errors import LocalClusterError
from .layout import Layout, NodeLayout


def load(layout: Layout, image: str, nodes: Sequence[NodeLayout]) -> None:
    """Import an image, given by its name or as the path of an archive, into nodes that are on."""
    running = [each for each in nodes if node.is_running(layout, each)]
    if off := [each.name for each in nodes if each not in running]:
        show(f"{image} is not on {', '.join(off)}: load it again when they are on")
    archive = Path(image)
    with ThreadPoolExecutor() as threads:
        if archive.is_file():
            list(threads.map(lambda each: run(*_ctr(each, "images", "import", archive)), running))
            return
        with images.layout_lock(shared=True):
            found = oci_layout.find(images.layout_folder(), image)
            list(threads.map(lambda each: _load_built(each, found), running))


def _ctr(each: NodeLayout, *arguments: str | Path) -> list[str | Path]:
    return [
        *("ctr", "--address", each.containerd_socket, "--namespace", "k8s.io"),
        *arguments,
    ]


def _load_built(each: NodeLayout, image: oci_layout.Image) -> None:
    """Import what the node lacks of an image; nothing at all if it has this very image."""
    if f"{image.name} {image.digest}" in _names_and_digests(each):
        return
    have = set(run(*_ctr(each, "content", "list", "--quiet")).split())
    process = subprocess.Popen(
        _ctr(each, "images", "import", "-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdin is not None
    try:
        with process.stdin:
            oci_layout.write_tar(images.layout_folder(), image, process.stdin, without=have)
    except BrokenPipeError:
        # It gave up early, and says why below.
        pass
    with process:
        said = process.stdout.read().decode(errors="replace") if process.stdout else ""
    if process.returncode != 0:
        raise LocalClusterError(f"{image.name} cannot be imported into {each.name}:\n{said}")


def _names_and_digests(each: NodeLayout) -> set[str]:
    """Return "NAME DIGEST" for each image that the node's container runtime has."""
    lines = run(*_ctr(each, "images", "list")).splitlines()[1:]
    words = [line.split() for line in lines]
    # The columns are name, media type, digest and more.
    return {f"{columns[0]} {columns[2]}" for columns in words if len(columns) > 2}
