"""A run for which MUST_RUN is set, as in CI, fails where another one would skip what it lacks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "tests" / "lib"
CONFTEST = """
from dledger_must_run import plugin

def pytest_configure(config):
    plugin.register(config)
"""
SKIPPED = """
import pytest

@pytest.fixture
def programs():
    pytest.skip("not built")

def test_with_programs(programs):
    pass

def test_that_finds_out():
    pytest.skip("not built")

@pytest.mark.skipif(True, reason="needs root")
def test_as_root():
    pass
"""
WITH_ONE_THAT_RUNS = f"""{SKIPPED}
def test_without_programs():
    pass
"""

WITH_A_RELEASE_THAT_IS_MISSING = """
from dledger_must_run.lacking import skip_or_fail

def test_with_the_history():
    skip_or_fail("the commit is not in the history; fetch it")

def test_without_it():
    pass
"""


def environment(must_run: bool) -> dict[str, str]:
    """Return the environment of a run."""
    left_out = ("MAKEFLAGS", "MAKELEVEL", "MUST_RUN")
    others = {name: value for name, value in os.environ.items() if name not in left_out}
    return others | ({"MUST_RUN": "1"} if must_run else {})


def run_pytest(folder: Path, module: str, *options: str, must_run: bool) -> tuple[int, str]:
    """Run a module; return the exit code, and what is printed."""
    (folder / "test_module.py").write_text(module)
    (folder / "conftest.py").write_text(CONFTEST)
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={folder}",
            "-W", "ignore", "-o", f"pythonpath={LIBRARY}", *options, ".",
        ],
        cwd=folder, env=environment(must_run), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("workers", ["0", "2"])
def test_nothing_but_skips_fails_a_run_that_must_run(tmp_path: Path, workers: str) -> None:
    code, printed = run_pytest(tmp_path, SKIPPED, "-n", workers, must_run=True)

    assert code == 1, printed
    assert "MUST_RUN is set, and all 3 tests were skipped" in printed


def test_nothing_but_skips_passes_elsewhere(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, SKIPPED, "-n", "0", must_run=False)

    assert code == 0, printed
    assert "3 skipped" in printed


def test_a_run_of_which_some_tests_ran_passes(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, WITH_ONE_THAT_RUNS, "-n", "0", must_run=True)

    assert code == 0, printed
    assert "1 passed, 3 skipped" in printed


def test_a_test_that_lacks_the_history_fails_a_run_that_must_run(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, WITH_A_RELEASE_THAT_IS_MISSING, "-n", "0", must_run=True)

    assert code == 1, printed
    assert "1 failed, 1 passed" in printed
    assert "MUST_RUN is set, and the commit is not in the history; fetch it" in printed


def test_a_test_that_lacks_the_history_is_skipped_elsewhere(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, WITH_A_RELEASE_THAT_IS_MISSING, "-n", "0", must_run=False)

    assert code == 0, printed
    assert "1 passed, 1 skipped" in printed


@pytest.mark.parametrize("must_run", [False, True])
def test_programs_that_cannot_be_built_stop_a_run_that_must_run(must_run: bool) -> None:
    done = subprocess.run(
        ["make", "--old-file=setup", "programs", "RUN=false"],
        cwd=ROOT, env=environment(must_run), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert "NO CLUSTER PROGRAMS" in done.stdout
    assert (done.returncode != 0) == must_run
    assert ("NO ROCKETMQ" in done.stdout) != must_run


def test_ci_must_run(tmp_path: Path) -> None:
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\necho "make $* with MUST_RUN=$MUST_RUN"\n')
    make.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"

    done = subprocess.run(
        [ROOT / ".ci" / "run"],
        env=environment(must_run=False) | {"PATH": path},
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout == "make test with MUST_RUN=1\n"
