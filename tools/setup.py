"""Prepare this checkout: install Debian packages, create a virtual environment, fetch promtool.

It runs under the system's Python, so it only uses the standard library. It changes nothing that is
already installed, so a second run is fast. The local cluster installs its own packages when it
starts.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JAVA_VERSION_MIN = 17


def main(arguments: list[str]) -> int:
    """Install what is missing; the argument is the folder of the virtual environment."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this check informs the user
        print(
            f"Python 3.11 or newer is required; this is {sys.version.split()[0]}", file=sys.stderr
        )
        return 1
    packages = missing_packages()
    if packages and not install_packages(packages):
        return 1
    environment = Path(arguments[0] if arguments else ".venv")
    make_environment(environment)
    fetch_promtool(environment / "bin")
    return 0


def missing_packages() -> list[str]:
    """Return the Debian packages that the next steps need and this machine lacks."""
    missing = []
    ensurepip = [sys.executable, "-c", "import ensurepip"]
    if subprocess.run(ensurepip, capture_output=True, check=False).returncode:
        missing.append(f"python{sys.version_info.major}.{sys.version_info.minor}-venv")
    if java_version() < JAVA_VERSION_MIN:
        missing.append(f"openjdk-{JAVA_VERSION_MIN}-jre-headless")
    # Only the power-cut tests on XFS need it, and only root can mount.
    if os.geteuid() == 0 and shutil.which("mkfs.xfs") is None:
        missing.append("xfsprogs")
    if os.geteuid() == 0:  # without them, the tests of completion use only bash
        missing += [shell for shell in ("zsh", "fish") if shutil.which(shell) is None]
    return missing


def java_version() -> int:
    """Return the major version of the Java on PATH; 0 if there is none."""
    if shutil.which("java") is None:
        return 0
    command = ["java", "-version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    words = shown.stderr.split('"')
    return int(words[1].split(".")[0]) if len(words) > 1 and words[1][:1].isdigit() else 0


def install_packages(packages: list[str]) -> bool:
    """Install Debian packages; if that is impossible, print what to do and return False."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(
            f"Debian packages are missing: {' '.join(packages)}. Run this command as root, or run\n"
            f"  apt-get update && apt-get install --no-install-recommends {' '.join(packages)}",
            file=sys.stderr,
        )
        return False
    print("installing Debian packages:", *packages, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-q"], check=True, env=environment)
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
    subprocess.run(install, check=True, env=environment)
    return True


def make_environment(folder: Path) -> None:
    """Create the virtual environment and install the project in it, editable and pinned."""
    if not (folder / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, *constraints, "--editable", f"{ROOT}[dev]"], check=True)


def fetch_promtool(folder: Path) -> None:
    """Put promtool, which tests the alerts, into a folder, unless this machine has it.

    It is in Debian's package of Prometheus, which is not installed: that would start a server.
    """
    if shutil.which("promtool") is not None or (folder / "promtool").exists():
        return
    if shutil.which("apt-get") is not None:
        print("fetching promtool", flush=True)
        with tempfile.TemporaryDirectory() as scratch:
            if download_package("prometheus", Path(scratch)):
                shutil.move(Path(scratch) / "usr" / "bin" / "promtool", folder / "promtool")
                return
    print("promtool cannot be fetched: tests of alerts are skipped until it is on PATH")


def download_package(name: str, folder: Path) -> bool:
    """Download a Debian package and unpack it into a folder; return whether that was possible."""
    download = ["apt-get", "download", "-q", name]
    if subprocess.run(download, cwd=folder, capture_output=True, check=False).returncode:
        if os.geteuid() != 0:
            return False
        subprocess.run(["apt-get", "update", "-q"], check=True)
        if subprocess.run(download, cwd=folder, check=False).returncode:
            return False
    (package,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", str(package), str(folder)], check=True)
    return True


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
