"""The systems that `python -m bench.peers` compares this project with, and their clients.

    python -m tools.peer_programs       build all of them

Maven fetches Kafka's jars and compiles the client in `bench/peers/java`. Go builds the NATS server,
etcd and their common client from the pinned modules in `bench/peers/go`. The results are kept in
the cache of the local cluster's programs. A missing JDK or Maven is installed if Debian has it,
which needs root. The benchmark builds nothing; it skips what is not built.
"""

import sys
from pathlib import Path
from typing import Final

from tools.java_dledger import BUILD_TIMEOUT_S, install_build_tools
from tools.local_cluster import cache, toolchain
from tools.local_cluster.commands import run, show
from tools.local_cluster.errors import LocalClusterError
from tools.local_cluster.programs import BUILD_ENVIRONMENT
from tools.setup import ROOT, java_version

GO_MODULE: Final = ROOT / "bench" / "peers" / "go"
JAVA_PROJECT: Final = ROOT / "bench" / "peers" / "java"
GO_PROGRAMS: Final = {
    "github.com/nats-io/nats-server/v2": "nats-server",
    "go.etcd.io/etcd/server/v3": "etcd",
    ".": "peerclient",
}
"""Import path of the main package -> the name of the program."""
_GO, _JAVA = "peers-go", "peers-java"


class PeerMissingError(Exception):
    """A peer is not built on this machine; the message says how to build it."""


def go_programs() -> Path:
    """Return the folder of the programs of GO_PROGRAMS; raises PeerMissingError."""
    return _find(_GO, _go_key())


def kafka_class_path() -> str:
    """Return the class path of Kafka and its client; raises PeerMissingError."""
    entry = _find(_JAVA, _java_key())
    if java_version() == 0:
        raise PeerMissingError("Kafka needs Java, which is not on PATH")
    return f"{entry / 'classes'}:{entry / 'jars'}/*"


def _find(kind: str, key: str) -> Path:
    entry = cache.find(kind, key)
    if entry is None:
        raise PeerMissingError("it is not built: run `python -m tools.peer_programs`")
    return entry


def _go_key() -> str:
    sources = sorted(path for path in GO_MODULE.iterdir() if path.is_file())
    return cache.key(repr(GO_PROGRAMS), repr(BUILD_ENVIRONMENT), *sources)


def _java_key() -> str:
    return cache.key(JAVA_PROJECT / "pom.xml", *sorted((JAVA_PROJECT / "src").rglob("*.java")))


def _make_go(folder: Path) -> None:
    go = toolchain.find_go(GO_MODULE / "go.mod")
    for package, program in GO_PROGRAMS.items():
        show(f"building {program}")
        run(
            *(go, "build", "-trimpath", "-ldflags", "-s -w", "-o", folder / program, package),
            environment=BUILD_ENVIRONMENT,
            folder=GO_MODULE,
            timeout_seconds=BUILD_TIMEOUT_S,
        )


def _make_java(folder: Path) -> None:
    if not install_build_tools():
        raise LocalClusterError("Kafka's jars and client need a JDK and Maven")
    show("fetching Kafka's jars and compiling its client")
    run(
        *("mvn", "--batch-mode", "--quiet", f"--file={JAVA_PROJECT / 'pom.xml'}"),
        *(f"-Dfolder={folder}", "compiler:compile", "dependency:copy-dependencies"),
        timeout_seconds=BUILD_TIMEOUT_S,
    )


def main() -> int:
    """Build what is missing; if one part cannot be built, build the others nevertheless."""
    failed = False
    for kind, key, make in ((_JAVA, _java_key(), _make_java), (_GO, _go_key(), _make_go)):
        try:
            cache.ensure(kind, key, make)
        except (LocalClusterError, OSError) as error:
            print(f"{kind} could not be built: {error}", file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
