"""Read and write images in the OCI layout: a folder, or a tar, of blobs named by their hashes.

One folder holds all images of the project, so it stores shared layers once. A node's container
runtime imports a tar of the same form. The tar may omit the blobs that the node already has, so the
import of a changed image only transfers the changed layers.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .errors import LocalClusterError

LAYOUT_FILE = b'{"imageLayoutVersion": "1.0.0"}'
_REFERENCE = "org.opencontainers.image.ref.name"
# containerd reads the full name of an image from this annotation.
_CONTAINERD_NAME = "io.containerd.image.name"


@dataclass(frozen=True)
class Image:
    """An image in a layout. The blobs are its manifest, its configuration and its layers."""

    name: str
    descriptor: dict[str, Any]
    blobs: tuple[str, ...]

    @property
    def digest(self) -> str:
        return str(self.descriptor["digest"])


def blob_path(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def images(layout: Path) -> list[Image]:
    """Return the images that a layout lists."""
    try:
        index = json.loads((layout / "index.json").read_text())
    except FileNotFoundError:
        return []
    found = []
    for descriptor in index["manifests"]:
        manifest = json.loads(blob_path(layout, descriptor["digest"]).read_text())
        parts = [descriptor, manifest["config"], *manifest["layers"]]
        found.append(
            Image(
                name=descriptor.get("annotations", {}).get(_REFERENCE, ""),
                descriptor=descriptor,
                blobs=tuple(part["digest"] for part in parts),
            )
        )
    return found


def find(layout: Path, name: str) -> Image:
    for image in images(layout):
        if image.name == name:
            return image
    raise LocalClusterError(f"image {name} has not been built")


def is_whole(layout: Path, image: Image) -> bool:
    return all(blob_path(layout, digest).exists() for digest in image.blobs)


def remove_replaced(layout: Path) -> None:
    """Delete the blobs of replaced images.

    A new image takes over the name of the previous one, which stays listed without a name.
    """
    index = json.loads((layout / "index.json").read_text())
    named = [each for each in index["manifests"] if each.get("annotations", {}).get(_REFERENCE)]
    if named != index["manifests"]:
        temporary = layout / "index.json.new"
        temporary.write_text(json.dumps({**index, "manifests": named}))
        temporary.rename(layout / "index.json")
    listed = {blob_path(layout, digest) for image in images(layout) for digest in image.blobs}
    for path in (layout / "blobs").glob("*/*"):
        if path not in listed:
            path.unlink()


def add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    """Add a file to a tar, with a header that is the same in every run."""
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(content))


def write_tar(
    layout: Path, image: Image, file: IO[bytes], *, without: Collection[str] = frozenset()
) -> None:
    """Write one image as a tar without the blobs `without`. The file need not be seekable."""
    descriptor = {
        **image.descriptor,
        "annotations": {_REFERENCE: image.name, _CONTAINERD_NAME: image.name},
    }
    with tarfile.open(fileobj=file, mode="w|", bufsize=1 << 20) as archive:
        for digest in image.blobs:
            if digest not in without:
                path = blob_path(layout, digest)
                archive.add(path, arcname=str(path.relative_to(layout)))
        write_index(archive, descriptor)


def write_index(archive: tarfile.TarFile, descriptor: dict[str, Any]) -> None:
    add(archive, "oci-layout", LAYOUT_FILE)
    index = {"schemaVersion": 2, "manifests": [descriptor]}
    add(archive, "index.json", json.dumps(index).encode())


def containerd_annotations(name: str) -> dict[str, str]:
    return {_CONTAINERD_NAME: name}
