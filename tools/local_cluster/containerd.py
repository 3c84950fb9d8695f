"""Commands for a container runtime, and a temporary runtime that only fills its storage."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from . import images, oci_layout
from .commands import run, succeeds
from .errors import LocalClusterError, with_log
from .waiting import wait_until

NAMESPACE = "k8s.io"
START_SECONDS = 30.0
STOP_SECONDS = 30.0


def ctr(socket: Path, *arguments: str | Path) -> list[str | Path]:
    """Return a `ctr` command for the images of the runtime at this socket."""
    return ["ctr", "--address", socket, "--namespace", NAMESPACE, *arguments]


def import_built(socket: Path, image: oci_layout.Image) -> None:
    """Import the blobs of an image that the runtime lacks; do nothing if it has the image.

    The caller must hold the layout's lock, at least shared.
    """
    if f"{image.name} {image.digest}" in _names_and_digests(socket):
        return
    have = set(run(*ctr(socket, "content", "list", "--quiet")).split())
    process = subprocess.Popen(
        ctr(socket, "images", "import", "-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdin is not None
    try:
        with process.stdin:
            oci_layout.write_tar(images.layout_folder(), image, process.stdin, without=have)
    except BrokenPipeError:
        # The import ended early; its output is reported below.
        pass
    with process:
        output = process.stdout.read().decode(errors="replace") if process.stdout else ""
    if process.returncode != 0:
        raise LocalClusterError(
            f"cannot import {image.name} into the runtime at {socket}:\n{output}"
        )


def _names_and_digests(socket: Path) -> set[str]:
    """Return "NAME DIGEST" for each image that the runtime has."""
    lines = run(*ctr(socket, "images", "list")).splitlines()[1:]
    words = [line.split() for line in lines]
    # The columns are name, media type, digest and more.
    return {f"{columns[0]} {columns[2]}" for columns in words if len(columns) > 2}


@contextlib.contextmanager
def running_for_storage(root: Path) -> Iterator[Path]:
    """Run a container runtime that keeps its files in `root` and runs no containers.

    Yields its socket. The runtime has ended when the block ends, so the files may be copied.
    """
    with tempfile.TemporaryDirectory(prefix="containerd-") as temporary:
        state = Path(temporary)
        socket, log = state / "containerd.sock", state / "log"
        configuration = state / "config.toml"
        configuration.write_text(
            f'version = 2\nroot = "{root}"\nstate = "{state / "state"}"\n'
            'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
            f'[grpc]\n  address = "{socket}"\n'
        )
        with log.open("wb") as output:
            # Its own mount namespace removes the mounts of unpacking, however it ends.
            process = subprocess.Popen(
                [
                    *("unshare", "--mount", "--propagation", "private"),
                    *("containerd", "--config", configuration),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(
                "containerd answers",
                lambda: succeeds(*ctr(socket, "version")) or _fail_if_ended(process, log),
                deadline_seconds=START_SECONDS,
            )
            yield socket
            process.terminate()
            process.wait(timeout=STOP_SECONDS)
        finally:
            process.kill()
            process.wait()


def _fail_if_ended(process: subprocess.Popen[bytes], log: Path) -> bool:
    if process.poll() is not None:
        raise LocalClusterError(with_log("containerd ended during its start", log))
    return False
