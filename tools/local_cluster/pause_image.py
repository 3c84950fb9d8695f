"""The image of every pod's sandbox, written as an OCI archive without an image builder.

It contains Debian's static busybox, so it also serves as a minimal image for experiments.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from . import cache, oci_layout
from .errors import LocalClusterError

PAUSE_IMAGE = "localhost/pause:1"
NAME = "pause.tar"
BUSYBOX = Path("/usr/bin/busybox")
_BUSYBOX_FALLBACK = Path("/bin/busybox")

_GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

# Bump when the archive's content changes other than through busybox.
FORMAT = "1"


def _add_folder(archive: tarfile.TarFile, name: str, mode: int = 0o755) -> None:
    entry = tarfile.TarInfo(name)
    entry.type = tarfile.DIRTYPE
    entry.mode = mode
    archive.addfile(entry)


def _layer(busybox: Path, applets: list[str]) -> bytes:
    """Return a tar of busybox under all its names; all times are zero, for a stable hash."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        _add_folder(layer, "bin")
        _add_folder(layer, "etc")
        _add_folder(layer, "tmp", 0o1777)
        oci_layout.add(layer, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
        oci_layout.add(layer, "bin/busybox", busybox.read_bytes(), 0o755)
        for applet in applets:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type = tarfile.SYMTYPE
            entry.linkname = "busybox"
            layer.addfile(entry)
    return buffer.getvalue()


def _blob(archive: tarfile.TarFile, media_type: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    oci_layout.add(archive, f"blobs/sha256/{digest}", content)
    kind = f"application/vnd.oci.image.{media_type}"
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}


def busybox_path() -> Path:
    found = [path for path in (BUSYBOX, _BUSYBOX_FALLBACK) if path.exists()]
    if not found:
        raise LocalClusterError("busybox-static is not installed")
    return found[0]


def write_pause_image(path: Path) -> None:
    """Write the archive; an annotation tells containerd the image's name."""
    busybox = busybox_path()
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    layer = _layer(busybox, [name for name in listed.stdout.split() if name != "busybox"])
    with tarfile.open(path, "w") as archive:
        layer_blob = _blob(archive, "layer.v1.tar", layer)
        config = {
            "architecture": _GO_ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/tail", "-f", "/dev/null"]},
            "rootfs": {"type": "layers", "diff_ids": [layer_blob["digest"]]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _blob(archive, "config.v1+json", json.dumps(config).encode()),
            "layers": [layer_blob],
        }
        descriptor = _blob(archive, "manifest.v1+json", json.dumps(manifest).encode())
        descriptor["annotations"] = oci_layout.containerd_annotations(PAUSE_IMAGE)
        oci_layout.write_index(archive, descriptor)


def pause_archive() -> Path:
    """Return the archive from the cache; write it if it is not cached."""
    key = cache.key(FORMAT, busybox_path())
    return cache.ensure("pause", key, lambda folder: write_pause_image(folder / NAME)) / NAME
