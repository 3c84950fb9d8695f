"""The prepared storage of a container runtime, with the images imported, for new nodes.

Importing an image writes each of its bytes twice, which with three nodes amounts to gigabytes.
Therefore a runtime without containers imports the images once, and its storage is kept in the
cache. A new node gets hard links to the files, which runtimes never change, and copies of the
databases, which they do change.

Every build changes only the last layer of each image, which is small. The storage is keyed by the
other layers; a node imports the layers that it lacks as usual.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from . import cache, containerd, images, oci_layout
from .commands import run, show, succeeds

# Bump when the way to create the storage changes.
FORMAT = "1"
_ROOT = "containerd"
_DATABASES = "io.containerd.*/*.db"


def ensure() -> Path | None:
    """Return a storage with the images that were last built here; None if none were built."""
    with images.layout_lock(shared=True):
        built = oci_layout.images(images.layout_folder())
        if not built:
            return None
        storage_key = key(built, run("containerd", "--version"))
        entry = cache.ensure("image-stores", storage_key, lambda made: _fill(made / _ROOT, built))
        return entry / _ROOT


def key(built: list[oci_layout.Image], version: str) -> str:
    """Return the cache key of a storage: the layers below the last ones and the runtime version."""
    # Manifest and configuration, the first blobs, change with the last layer.
    kept = [(image.name, image.blobs[2:-1]) for image in built]
    return cache.key(FORMAT, version, repr(sorted(kept)))


def _fill(root: Path, built: list[oci_layout.Image]) -> None:
    show(f"unpacking {len(built)} images once for all nodes")
    with containerd.running_for_storage(root) as socket:
        for image in built:
            containerd.import_built(socket, image)


def clone(store: Path, root: Path) -> None:
    """Create the root folder of a new runtime from a storage."""
    unfinished = root.with_name(f"{root.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    if not succeeds("cp", "--archive", "--link", store, unfinished):
        # Hard links fail if the cache is on a different file system.
        shutil.rmtree(unfinished, ignore_errors=True)
        run("cp", "--archive", "--reflink=auto", store, unfinished)
    for database in store.glob(_DATABASES):
        own = unfinished / database.relative_to(store)
        own.unlink()
        shutil.copy2(database, own)
    unfinished.rename(root)
