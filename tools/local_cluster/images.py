"""The container images: a Debian base built without a registry, and the project's three images.

The image builder's storage is in the cache, separate from the machine's own, and may be deleted at
any time. The results are in an OCI layout beside it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from . import cache, oci_layout, packages, pip_settings
from .commands import run, show, succeeds
from .errors import LocalClusterError
from .layout import cache_folder

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("operator", "node", "audit")
TAG = "dev"

SUITE = "bookworm"
BASE_PACKAGES = ("python3", "python3-venv", "ca-certificates")
AUDIT_BASE_PACKAGES = (*BASE_PACKAGES, "openjdk-17-jre-headless")
# The sources that the audit's image runs to make its class data, before it has the project.
CLASS_DATA_SOURCES = tuple(
    f"audit/dledger_audit/{name}"
    for name in (
        *("__init__.py", "class_data.py", "interrupts.py", "log4j2.properties"),
        *("make_class_data.py", "session.py"),
    )
)
# Bump when the way to create the root file system changes.
BASE_FORMAT = "1"
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_MOUNTED_WHEN_BUILDING = (CERTIFICATES, "/etc/resolv.conf", "/etc/hosts")

# Every build leaves a few small layers that later builds may reuse. Beyond this number of images,
# the unnamed ones are deleted, and the next build takes longer.
STORED_IMAGES_MAX = 300


# The builder leaves its storage mounted over itself; a mount namespace removes that mount.
_IN_OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private")


def image_name(target: str, tag: str = TAG) -> str:
    return f"localhost/dledger-{target}:{tag}"


def _storage() -> Path:
    return cache_folder() / "buildah"


def layout_folder() -> Path:
    """Return the folder of the OCI layout with the built images."""
    return cache_folder() / "images" / "layout"


def layout_lock(*, shared: bool = False) -> AbstractContextManager[None]:
    """Lock the layout; take the lock shared to read, because builds remove replaced images."""
    return cache.lock(cache_folder() / "images" / ".lock", "images", shared=shared)


def _buildah_command(*arguments: str | os.PathLike[str]) -> list[str | os.PathLike[str]]:
    # The cache mounts of the Dockerfile are kept below the folder for temporary files.
    temporary = _storage() / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    return [
        *(*_IN_OWN_MOUNTS, "env", f"TMPDIR={temporary}"),
        *("buildah", "--root", _storage() / "storage", "--runroot", _storage() / "run"),
        *("--storage-driver", "overlay", *arguments),
    ]


def _buildah(*arguments: str | os.PathLike[str]) -> str:
    return run(*_buildah_command(*arguments))


def _root_file_system(names: tuple[str, ...]) -> Path:
    """Return a tar of a minimal Debian with these packages; builds it if not cached."""

    def make(folder: Path) -> None:
        show(f"building a Debian base with {', '.join(names)}")
        run(
            *("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(names)}"),
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT),
            # Java's package expects this folder, in which it registers manual pages.
            '--essential-hook=mkdir -p "$1"/usr/share/man/man1',
            # Remove this machine's settings and package sources.
            '--customize-hook=rm -rf "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/*',
            '--customize-hook=rm -f "$1"/etc/resolv.conf "$1"/etc/hostname',
            *(SUITE, folder / "root.tar"),
        )

    return cache.ensure("base", _base_key(names), make) / "root.tar"


def _base_key(names: tuple[str, ...]) -> str:
    return cache.key(BASE_FORMAT, SUITE, repr(names), repr(_LEFT_OUT), os.uname().machine)


def _base_image(name: str, names: tuple[str, ...]) -> str:
    """Return a base image; create it from its tar if buildah's storage does not have it."""
    reference = f"localhost/{name}:{_base_key(names)}"
    tar = _root_file_system(names)
    if succeeds(*_buildah_command("inspect", "--type", "image", reference)):
        return reference
    container = _buildah("from", "scratch").strip()
    try:
        _buildah("add", "--quiet", container, tar, "/")
        _buildah("config", "--env", "LANG=C.UTF-8", "--cmd", "python3", container)
        _buildah("commit", "--quiet", container, reference)
    finally:
        _buildah("rm", container)
    return reference


@contextmanager
def _build_mounts() -> Iterator[list[str]]:
    """Yield buildah's arguments for files of this machine that only the build can see."""
    options = pip_settings.merge(
        os.environ, pip_settings.configuration_files(os.environ, Path.home())
    )
    paths = {Path(path) for path in _MOUNTED_WHEN_BUILDING if Path(path).exists()}
    paths.update(pip_settings.named_paths(options))
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as configuration:
        configuration.write(pip_settings.text(options))
        configuration.flush()
        mounts = [f"{configuration.name}:{pip_settings.CONFIG_IN_BUILD}:ro"]
        mounts += [f"{path.resolve()}:{path}:ro" for path in sorted(paths)]
        yield [f"--volume={mount}" for mount in mounts]


def build(targets: Sequence[str] = TARGETS, *, context: Path = ROOT, tag: str = TAG) -> list[str]:
    """Build images of a checkout, by default this one, into the OCI layout; return their names.

    Unchanged layers are reused from the last build.
    """
    if unknown := set(targets) - set(TARGETS):
        raise LocalClusterError(
            f"unknown images: {', '.join(sorted(unknown))}; the images are {', '.join(TARGETS)}"
        )
    packages.ensure(packages.FOR_IMAGES)
    with layout_lock():
        _tidy_storage()
        bases = {
            "BASE": _base_image("dledger-base", BASE_PACKAGES),
            "AUDIT_BASE": _base_image("dledger-audit-base", AUDIT_BASE_PACKAGES),
        }
        with _build_mounts() as mounts:
            for target in targets:
                name = image_name(target, tag)
                _build_target(target, name, bases, mounts, context)
        oci_layout.remove_replaced(layout_folder())
    return [image_name(target, tag) for target in targets]


def _build_target(
    target: str, name: str, bases: dict[str, str], mounts: list[str], context: Path
) -> None:
    began = time.monotonic()
    # The runtime image has its own name. To find it among its layers, the builder would have to
    # hash all files of the dependencies, which takes ten seconds for the audit.
    runtime = f"localhost/dledger-{target}-runtime:{_runtime_key(target, bases, context)}"
    if not succeeds(*_buildah_command("inspect", "--type", "image", runtime)):
        _build_stage(f"{target}-runtime", runtime, bases, mounts, context)
    with_runtime = {**bases, f"{target.upper()}_RUNTIME": runtime}
    _build_stage(target, name, with_runtime, mounts, context)
    _copy_to_layout(name)
    show(f"{name} built in {time.monotonic() - began:.1f} s")


def _runtime_key(target: str, bases: dict[str, str], context: Path) -> str:
    """Hash everything that determines an image without the project."""
    project = tomllib.loads((context / "pyproject.toml").read_text())
    return cache.key(
        repr(sorted(bases.items())),
        repr(project["project"]["optional-dependencies"]),
        context / "constraints.txt",
        context / "Dockerfile",
        *(context / source for source in CLASS_DATA_SOURCES if target == "audit"),
        target,
    )


def _build_stage(
    stage: str, tag: str, arguments: dict[str, str], mounts: list[str], context: Path
) -> None:
    command: list[str | os.PathLike[str]] = [
        *("bud", "--quiet", "--layers", "--network", "host", "--isolation", "chroot"),
        *("--pull-never", "--format", "oci", "--target", stage, "--tag", tag),
        *(f"--build-arg={name}={value}" for name, value in arguments.items()),
        *mounts,
        context,
    ]
    _buildah(*command)


def _copy_to_layout(name: str) -> None:
    """Copy an image's missing blobs to the layout, uncompressed.

    Compression would take time and change the hashes by which present blobs are recognized.
    """
    layout = layout_folder()
    layout.parent.mkdir(parents=True, exist_ok=True)
    if any(not oci_layout.is_whole(layout, image) for image in oci_layout.images(layout)):
        shutil.rmtree(layout)
    storage = f"[overlay@{_storage() / 'storage'}+{_storage() / 'run'}]"
    run(
        *(*_IN_OWN_MOUNTS, "skopeo", "copy", "--quiet", "--dest-oci-accept-uncompressed-layers"),
        *(f"containers-storage:{storage}{name}", f"oci:{layout}:{name}"),
    )


def export(name: str, folder: Path) -> Path:
    """Write a built image to an OCI archive, for other kinds of clusters."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / (name.rpartition("/")[2].replace(":", "-") + ".tar")
    with layout_lock(shared=True), open(archive, "wb") as file:
        oci_layout.write_tar(layout_folder(), oci_layout.find(layout_folder(), name), file)
    return archive


def _tidy_storage() -> None:
    """Delete the builder's storage if it is unreadable; remove unnamed images if it is large."""
    try:
        stored = _buildah("images", "--all", "--quiet").split()
    except LocalClusterError as error:
        show(f"deleting the image builder's damaged storage: {error}")
        shutil.rmtree(_storage())
        return
    if len(stored) > STORED_IMAGES_MAX:
        _buildah("rmi", "--prune", "--force")
