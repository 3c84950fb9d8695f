"""Every test is in exactly one stage of `make test`."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
LISTING = """
import json, sys

def pytest_collection_finish(session):
    for item in session.items:
        names = sorted({marker.name for marker in item.iter_markers()})
        print(json.dumps([item.nodeid, names]), file=sys.stderr)
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """What one call of pytest runs."""

    paths: tuple[str, ...]
    ignored: tuple[str, ...]
    expression: str

    def runs(self, nodeid: str, markers: list[str]) -> bool:
        file = nodeid.partition("::")[0]
        within = any(f"{file}/".startswith(f"{path}/") for path in self.paths)
        has = defaultdict(bool, dict.fromkeys(markers, True))
        return within and file not in self.ignored and bool(eval(self.expression, {}, has))


def make(target: str, *settings: str) -> str:
    """Return the commands of a target."""
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    return subprocess.run(
        ["make", "--dry-run", target, *settings],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def stages() -> Iterator[Stage]:
    for command in re.findall(r"-m pytest (.*?); printf", make("test")):
        words = shlex.split(command)
        expression = words[words.index("-m") + 1] if "-m" in words else "True"
        ignored = [word.partition("=")[2] for word in words if word.startswith("--ignore=")]
        paths = [word.rstrip("/") for word in words if word.startswith("tests")]
        yield Stage(tuple(paths or ["tests"]), tuple(ignored), expression)


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, list[str]]]:
    """Every test, with its markers."""
    folder = tmp_path_factory.mktemp("listing")
    (folder / "listing.py").write_text(LISTING)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "listing"],
        env={**os.environ, "PYTHONPATH": str(folder)}, cwd=ROOT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found: list[Any] = [json.loads(line) for line in done.stderr.splitlines() if line[:1] == "["]
    return [(nodeid, markers) for nodeid, markers in found]


def test_every_test_is_in_exactly_one_stage(tests: list[tuple[str, list[str]]]) -> None:
    all_stages = list(stages())
    counts = {
        nodeid: sum(stage.runs(nodeid, markers) for stage in all_stages)
        for nodeid, markers in tests
    }

    assert len(counts) > 10_000
    assert {nodeid: count for nodeid, count in counts.items() if count != 1} == {}


@pytest.mark.parametrize(
    ("target", "settings", "sample"),
    [("test", ["SAMPLE=642dab44"], "642dab44"), ("test-all", [], "all")],
)
def test_every_stage_of_a_target_has_its_sample(
    target: str, settings: list[str], sample: str
) -> None:
    commands = re.findall(r"-m pytest .*?-m .*?; printf", make(target, *settings))

    assert len(commands) >= 12
    assert all(f" --sample={sample} " in command for command in commands)
