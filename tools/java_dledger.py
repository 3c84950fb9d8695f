"""Java DLedger as it is published: the jars of a version and two small programs around it.

    python -m tools.java_dledger        build every version that the tests and benchmarks use

Maven fetches the jars and compiles `tests/interop/java` once for each version; the result is kept
in the same cache as the local cluster's programs. Debian's JDK and Maven are installed where they
are missing, which takes root; tests never do that, and are skipped instead.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.local_cluster import cache
from tools.setup import ROOT, install_packages, java_version

PROJECT: Final = ROOT / "tests" / "interop" / "java"
VERSIONS: Final = ("0.3.1.2", "0.3.2", "0.4.0", "0.4.3")
"""0.3.1.2: RocketMQ up to 5.3; 0.3.2: RocketMQ 5.4 and 5.5; 0.4.0, 0.4.3: the newer dialect."""
PACKAGES: Final = {"javac": "openjdk-17-jdk-headless", "mvn": "maven"}
BUILD_TIMEOUT_S: Final = 900
_KIND: Final = "java-dledger"


class JavaMissingError(Exception):
    """Java DLedger is not built on this machine; the message says how it is."""


def find(version: str) -> str:
    """The class path of a version; JavaMissingError when it was never built."""
    entry = cache.find(_KIND, _key(version))
    if entry is None or java_version() == 0:
        raise JavaMissingError(
            f"Java DLedger {version} is not built: run `python -m tools.java_dledger` once; it "
            f"needs a JDK and Maven (Debian: {' '.join(PACKAGES.values())})"
        )
    return _class_path(entry)


def build(version: str) -> str:
    """Build a version unless it is there; returns its class path. Takes half a minute."""
    return _class_path(cache.ensure(_KIND, _key(version), lambda folder: _make(version, folder)))


def _key(version: str) -> str:
    return cache.key(version, PROJECT / "pom.xml", *sorted((PROJECT / "src").rglob("*.java")))


def _class_path(entry: Path) -> str:
    return f"{entry / 'classes'}:{entry / 'jars'}/*"


def _make(version: str, folder: Path) -> None:
    command = [
        "mvn", "--batch-mode", "--quiet", f"--file={PROJECT / 'pom.xml'}",
        f"-Ddledger.version={version}", f"-Dfolder={folder}",
        "compiler:compile", "dependency:copy-dependencies",
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=BUILD_TIMEOUT_S)


def main() -> int:
    """Install what is missing and build every version."""
    missing = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    try:
        if missing and not install_packages(missing):
            return 1
        for version in VERSIONS:
            build(version)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"Java DLedger could not be built: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
