"""The storage of a container runtime that has the images already, from which new nodes start.

To import images writes each of their bytes twice, and with three nodes that is gigabytes. So a
runtime without containers imports them once, and its storage is kept in the cache. A new node gets
hard links of the files, which no runtime ever changes, and copies of the databases, which it does.

What changes with every build is the last layer of each image, and is small: the storage is kept by
the other layers, and what a node lacks of the newest images is imported as always.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from . import cache, containerd, images, oci_layout
from .commands import run, show, succeeds

# Bump when the storage is made in another way.
FORMAT = "1"
_ROOT = "containerd"
_DATABASES = "io.containerd.*/*.db"


def ensure() -> Path | None:
    """Return a storage with the images that were last built here; None if there are none."""
    with images.layout_lock(shared=True):
        built = oci_layout.images(images.layout_folder())
        if not built:
            return None
        storage_key = key(built, run("containerd", "--version"))
        entry = cache.ensure("image-stores", storage_key, lambda made: _fill(made / _ROOT, built))
        return entry / _ROOT


def key(built: list[oci_layout.Image], version: str) -> str:
    """Hash what a storage for these images is good for, and the runtime's version."""
    # Of the blobs, manifest and configuration come first; both change with the last layer.
    kept = [(image.name, image.blobs[2:-1]) for image in built]
    return cache.key(FORMAT, version, repr(sorted(kept)))


def _fill(root: Path, built: list[oci_layout.Image]) -> None:
    show(f"unpacking {len(built)} images once for all nodes")
    with containerd.running_for_storage(root) as socket:
        for image in built:
            containerd.import_built(socket, image)


def clone(store: Path, root: Path) -> None:
    """Give a runtime that was never started the images of a storage."""
    unfinished = root.with_name(f"{root.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    if not succeeds("cp", "--archive", "--link", store, unfinished):
        # The cache is on another file system.
        shutil.rmtree(unfinished, ignore_errors=True)
        run("cp", "--archive", "--reflink=auto", store, unfinished)
    for database in store.glob(_DATABASES):
        own = unfinished / database.relative_to(store)
        own.unlink()
        shutil.copy2(database, own)
    unfinished.rename(root)
