"""What `pip install` says under a Python that is too old."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BUILD = PYPROJECT["build-system"]


def imported(prelude: str) -> subprocess.CompletedProcess[str]:
    """Import the build backend as pip does, in its own process."""
    [folder] = BUILD["backend-path"]
    code = f"import sys; sys.path.insert(0, {folder!r}); {prelude}; import {BUILD['build-backend']}"
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, cwd=ROOT, timeout=60, check=False,
    )  # fmt: skip


def test_an_older_python_is_refused_when_the_build_backend_is_imported() -> None:
    required = PYPROJECT["project"]["requires-python"].removeprefix(">=")
    major, minor = map(int, required.split("."))
    older = f"{major}.{minor - 1}.13"

    done = imported(f"sys.version_info = ({major}, {minor - 1}, 13); sys.version = '{older} (x)'")

    assert done.returncode == 1
    assert done.stderr == f"Python {required} or newer is required; this is {older}\n"


def test_the_build_backend_can_be_read_by_any_python_3() -> None:
    [folder] = BUILD["backend-path"]
    path = ROOT / folder / f"{BUILD['build-backend']}.py"

    ast.parse(path.read_text(), feature_version=(3, 4))
