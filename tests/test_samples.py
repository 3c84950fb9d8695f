"""`--sample` runs a part of the tests that are marked `sampled`, and only of those."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dledger_samples.choice import ALL, chosen, within

LIBRARY = Path(__file__).resolve().parent / "lib"
NAMES = [f"case {number}" for number in range(40)]
MODULE = """
import pytest

@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(20))
def test_seeds(seed):
    pass

@pytest.mark.sampled(1, by="version")
@pytest.mark.parametrize("way", ["a", "b"])
@pytest.mark.parametrize("version", [3, 4, 5])
def test_versions(version, way):
    pass

@pytest.mark.sampled(1, among="growth")
def test_growth_to_five():
    pass

@pytest.mark.sampled(1, among="growth")
def test_growth_to_seven():
    pass

def test_always():
    pass
"""
CONFTEST = """
from dledger_samples import plugin

def pytest_addoption(parser):
    plugin.add_option(parser)

def pytest_configure(config):
    config.pluginmanager.register(plugin)
"""


def test_a_sample_chooses_the_same_each_time() -> None:
    first, second = (chosen("642dab44", "seeds", NAMES, 10) for _ in range(2))

    assert first == second
    assert len(first) == 10


def test_samples_choose_everything_in_the_end() -> None:
    parts = [chosen(f"commit {number}", "seeds", NAMES, 10) for number in range(40)]

    assert set.union(*parts) == set(NAMES)


def test_nothing_is_left_out_of_the_sample_of_all() -> None:
    assert chosen(ALL, "seeds", NAMES, 1) == set(NAMES)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_share_has_about_its_part_of_the_names(share: float) -> None:
    names = {f"file {number}" for number in range(1000)}

    assert len(within("642dab44", "files", names, share)) == pytest.approx(1000 * share, abs=50)


def test_a_name_is_in_a_share_whatever_else_there_is() -> None:
    names = set(NAMES)
    kept = within("642dab44", "files", names, 0.5)

    for name in kept:
        others = {each for each in names if each <= name}
        assert name in within("642dab44", "files", others, 0.5)


def test_shares_take_turns_and_are_never_empty() -> None:
    parts = [within(f"commit {number}", "files", {"a", "b", "c"}, 0.1) for number in range(40)]

    assert all(parts)
    assert set.union(*parts) == {"a", "b", "c"}


def run(folder: Path, *options: str, copies: int = 0) -> str:
    """Run the module's tests, and those of copies of it; return what pytest prints."""
    (folder / "test_module.py").write_text(MODULE)
    for number in range(copies):
        (folder / f"test_copy_{number}.py").write_text(MODULE)
    (folder / "conftest.py").write_text(CONFTEST)
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist",
            f"--rootdir={folder}", "-W", "ignore", "-o", f"pythonpath={LIBRARY}", *options, ".",
        ],
        cwd=folder, capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_run_without_a_sample_runs_every_case(tmp_path: Path) -> None:
    printed = run(tmp_path)

    assert "29 passed" in printed
    assert "deselected" not in printed


def test_a_sample_keeps_part_of_each_test_that_is_sampled(tmp_path: Path) -> None:
    printed = run(tmp_path, "--sample=642dab44")

    assert "6 passed, 23 deselected" in printed
    counts = {
        test: printed.count(f"::{test}")
        for test in ("test_seeds", "test_versions", "test_growth", "test_always")
    }
    assert counts == {"test_seeds": 2, "test_versions": 2, "test_growth": 1, "test_always": 1}
    assert "--sample=642dab44 runs it again" in printed


def test_other_samples_keep_other_parts(tmp_path: Path) -> None:
    passed = [
        {line.split()[0] for line in run(tmp_path, f"--sample={name}").splitlines() if "::" in line}
        for name in ("first", "second")
    ]

    assert passed[0] != passed[1]


def test_a_share_keeps_whole_files_of_each_sample(tmp_path: Path) -> None:
    printed = run(tmp_path, "--sample=642dab44", "--share=0.5", copies=15)

    passed = [line for line in printed.splitlines() if "PASSED" in line]
    files = {line.split("::")[0] for line in passed}
    assert 0 < len(files) < 16
    assert len([line for line in passed if "::test_always" in line]) == len(files)
    assert len([line for line in passed if "::test_seeds" in line]) == 2 * len(files)
    assert "50% of the files; --sample=642dab44 --share=0.5 runs it again" in printed


@pytest.mark.parametrize("sample", ["642dab44", "first", "second"])
def test_a_file_that_is_marked_so_is_in_every_share(tmp_path: Path, sample: str) -> None:
    (tmp_path / "test_marked.py").write_text(
        "import pytest\npytestmark = pytest.mark.in_every_sample\n"
        "@pytest.mark.sampled(1)\n@pytest.mark.parametrize('seed', range(9))\n"
        "def test_of_it(seed):\n    pass\n"
    )

    printed = run(tmp_path, f"--sample={sample}", "--share=0.1", copies=9)

    assert printed.count("::test_of_it") == 1


@pytest.mark.parametrize("sample", ["642dab44", "first", "second"])
def test_a_set_of_several_files_is_never_empty_in_a_share(tmp_path: Path, sample: str) -> None:
    printed = run(tmp_path, f"--sample={sample}", "--share=0.2", copies=15)

    passed = [line for line in printed.splitlines() if "PASSED" in line]
    assert len([line for line in passed if "::test_growth" in line]) == 1


def test_a_share_leaves_nothing_out_of_the_sample_of_all(tmp_path: Path) -> None:
    assert "deselected" not in run(tmp_path, "--share=0.5", copies=3)
