"""The Debian packages that a cluster needs; missing ones are installed."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

from .commands import run, show
from .errors import LocalClusterError

# Package -> a file that it installs. A file that was installed in another way counts as well.
FOR_CLUSTER = {
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iptables": "iptables",
    "nftables": "nft",
    "ipset": "ipset",
    "conntrack": "conntrack",
    "iproute2": "ip",
    "busybox-static": "busybox",
    "openssl": "openssl",
    "util-linux": "unshare",
    "e2fsprogs": "mkfs.ext4",
}
FOR_IMAGES = {
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "skopeo": "skopeo",
    "debian-archive-keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
}
# Debian's Python lacks the files that `python3 -m venv` puts into an environment.
FOR_ENVIRONMENTS = {
    f"python{sys.version_info.major}.{sys.version_info.minor}-venv": str(
        Path(sysconfig.get_path("stdlib"), "ensurepip", "__init__.py")
    )
}


def missing(packages: dict[str, str]) -> list[str]:
    return [name for name, file in packages.items() if not _is_there(file)]


def _is_there(file: str) -> bool:
    if file.startswith("/"):
        return Path(file).exists()
    # A user's PATH may lack the folders of root's programs.
    return bool(shutil.which(file) or shutil.which(file, path="/usr/sbin:/sbin"))


def ensure(packages: dict[str, str]) -> None:
    wanted = missing(packages)
    if not wanted:
        return
    if not shutil.which("apt-get"):
        raise LocalClusterError(
            f"missing Debian packages, and no apt-get to install them: {', '.join(wanted)}"
        )
    show(f"installing Debian packages: {' '.join(wanted)}")
    environment = {"DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "update", "--quiet", environment=environment)
    run(
        *("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *wanted),
        environment=environment,
    )
    if still := missing(packages):
        raise LocalClusterError(
            f"packages were installed, but their programs are missing: {', '.join(still)}"
        )
