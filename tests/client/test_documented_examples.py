"""The examples of README and docs run as they stand on a local group.

Every block of Python in docs/client.md is run, and in README.md and docs/ every block of shell
commands below the comment `run on a local group`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group
ROOT = Path(__file__).parents[2]
FENCE = "^{before}```{language}\\n(.*?)^```"


def blocks(path: Path, language: str, before: str = "") -> list[str]:
    """Return the blocks of a language in a page, below the line `before` if there is one."""
    fence = FENCE.format(before=before, language=language)
    return re.findall(fence, path.read_text(), re.MULTILINE | re.DOTALL)


PYTHON = blocks(ROOT / "docs" / "client.md", "python")
SHELL = [
    block
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for block in blocks(path, "sh", "<!-- run on a local group -->\n")
]
PROGRAM = re.compile(r"^(\.venv/bin/)?dledger\b", re.MULTILINE)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[NodeGroup]:
    """Three members and one that may be added."""
    with NodeGroup(tmp_path, 3, addable=1) as group:
        group.master()
        yield group


def run(command: list[str], group: NodeGroup) -> str:
    pages = [f"127.0.0.1:{port}" for member, port in group.http_ports.items() if member != "n3"]
    environment = dict(os.environ) | {
        "DLEDGER_CLIENT_SERVERS": ",".join(group.peers.values()),
        "DLEDGER_CLIENT_GROUP": "g",
        "DLEDGER_CLIENT_HTTP": ",".join(pages),
    }
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def for_group(example: str, group: NodeGroup) -> str:
    """Return an example with the addresses and the name of a group of the test."""
    named = example.replace('"local"', '"g"')
    return named.replace("127.0.0.1:40911", ",".join(group.peers.values()))


@pytest.mark.parametrize("example", PYTHON, ids=range(len(PYTHON)))
def test_a_python_example_runs_as_it_stands(example: str, group: NodeGroup) -> None:
    assert run([sys.executable, "-c", for_group(example, group)], group)


@pytest.mark.parametrize("example", PYTHON, ids=range(len(PYTHON)))
def test_a_python_example_passes_mypy_strict(example: str, tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text(example)

    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(path)],
        capture_output=True, text=True, cwd=ROOT, timeout=300, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("example", SHELL, ids=range(len(SHELL)))
def test_a_shell_example_runs_as_it_stands(example: str, group: NodeGroup) -> None:
    program = f"{sys.executable} -m dledger_client"

    assert run(["bash", "-euo", "pipefail", "-c", PROGRAM.sub(program, example)], group)


def test_there_are_examples() -> None:
    assert len(PYTHON) > 1
    assert SHELL
