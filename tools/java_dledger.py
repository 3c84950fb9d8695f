"""Published versions of Java DLedger: the jars, and two small programs around them.

    python -m tools.java_dledger        build every version that the tests and benchmarks use

Maven fetches the jars and compiles `tests/interop/java` once for each version. The results are kept
in the cache of the local cluster's programs. If Debian's JDK or Maven is missing, it is installed,
which needs root. Tests never build anything; they are skipped instead.
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
"""RocketMQ up to 5.3 uses 0.3.1.2, and 5.4 and 5.5 use 0.3.2. 0.4.0 and 0.4.3 have the newer
protocol.
"""
PACKAGES: Final = {"javac": "openjdk-17-jdk-headless", "mvn": "maven"}
BUILD_TIMEOUT_S: Final = 900
_KIND: Final = "java-dledger"


class JavaMissingError(Exception):
    """Java DLedger is not built on this machine; the message says how to build it."""


def find(version: str) -> str:
    """Return the class path of a version; raises JavaMissingError if it is not built."""
    entry = cache.find(_KIND, _key(version))
    if entry is None or java_version() == 0:
        raise JavaMissingError(
            f"Java DLedger {version} is not built: run `python -m tools.java_dledger`, which needs "
            f"a JDK and Maven (Debian: {' '.join(PACKAGES.values())})"
        )
    return _class_path(entry)


def build(version: str) -> str:
    """Build a version unless it is cached, in half a minute; return its class path."""
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


def install_build_tools() -> bool:
    """Install the JDK and Maven if they are missing; if not possible, say so and return False."""
    missing = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    return not missing or install_packages(missing)


def main() -> int:
    """Install missing packages and build every version."""
    try:
        if not install_build_tools():
            return 1
        for version in VERSIONS:
            build(version)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"Java DLedger could not be built: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
