"""Find etcd, the API server, kubectl and helm among the programs of the local cluster."""

from pathlib import Path

from tools.local_cluster import cache, programs, toolchain
from tools.local_cluster.layout import cache_folder


class ProgramsMissingError(Exception):
    """The programs are not built on this machine."""


def find() -> Path:
    """Return the folder of the programs; raises ProgramsMissingError if they are not built.

    Tests never build them, because that takes ten minutes.
    """
    kind = "programs"
    if any((cache_folder() / kind).glob("*/kube-apiserver")):
        go = toolchain.find_go(programs.MODULE / "go.mod")
        built = cache.find(kind, programs.entry_key(toolchain.version(go)))
        if built is not None:
            return built
    raise ProgramsMissingError(
        "etcd and kube-apiserver are not built: run `python -m tools.local_cluster build`"
    )
