"""Published versions of RocketMQ: its clients with a program of scenarios, and its servers.

    python -m tools.java_rocketmq       build every version that tests and benchmarks use

Maven fetches the jars and compiles `tests/interop/java_rocketmq` once for each version of the
client. The results are kept with those of `tools.java_dledger`. Tests never build anything;
they are skipped instead.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.java_dledger import BUILD_TIMEOUT_S, PACKAGES, JavaMissingError, install_build_tools
from tools.local_cluster import cache
from tools.setup import ROOT, java_version

PROJECT: Final = ROOT / "tests" / "interop" / "java_rocketmq"
CLIENT_VERSIONS: Final = ("4.9.8", "5.3.3", "5.5.0")
NAME_SERVER_VERSIONS: Final = ("5.3.3", "4.9.7")
BROKER_VERSIONS: Final = ("5.3.3", "4.9.7")
_KIND: Final = "java-rocketmq"
_CLIENT: Final = "rocketmq-tools"
"""The administration client, which includes the client of producers and consumers."""
_NAME_SERVER: Final = "rocketmq-namesrv"
_BROKER: Final = "rocketmq-broker"


def find_client(version: str) -> str:
    """Return the class path of a client; raises JavaMissingError if it is not built."""
    return _found(_CLIENT, version)


def find_name_server(version: str) -> str:
    """Return the class path of a name server; raises JavaMissingError if it is not fetched."""
    return _found(_NAME_SERVER, version)


def find_broker(version: str) -> str:
    """Return the class path of a broker; raises JavaMissingError if it is not fetched."""
    return _found(_BROKER, version)


def _found(artifact: str, version: str) -> str:
    entry = cache.find(_KIND, _key(artifact, version))
    if entry is None or java_version() == 0:
        raise JavaMissingError(
            f"{artifact} {version} is not built: run `python -m tools.java_rocketmq`, which needs "
            f"a JDK and Maven (Debian: {' '.join(PACKAGES.values())})"
        )
    return _class_path(entry)


def _key(artifact: str, version: str) -> str:
    sources = sorted((PROJECT / "src").rglob("*.java")) if artifact == _CLIENT else []
    return cache.key(artifact, version, PROJECT / "pom.xml", *sources)


def _class_path(entry: Path) -> str:
    return f"{entry / 'classes'}:{entry / 'jars'}/*"


def _build(artifact: str, version: str) -> None:
    cache.ensure(_KIND, _key(artifact, version), lambda folder: _make(artifact, version, folder))


def _make(artifact: str, version: str, folder: Path) -> None:
    goals = ["dependency:copy-dependencies"]
    if artifact == _CLIENT:
        goals.insert(0, "compiler:compile")
    command = [
        "mvn", "--batch-mode", "--quiet", f"--file={PROJECT / 'pom.xml'}",
        f"-Dartifact={artifact}", f"-Drocketmq.version={version}", f"-Dfolder={folder}", *goals,
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=BUILD_TIMEOUT_S)


def main() -> int:
    """Install missing packages and build every version."""
    try:
        if not install_build_tools():
            return 1
        for version in CLIENT_VERSIONS:
            _build(_CLIENT, version)
        for version in NAME_SERVER_VERSIONS:
            _build(_NAME_SERVER, version)
        for version in BROKER_VERSIONS:
            _build(_BROKER, version)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"RocketMQ could not be built: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
