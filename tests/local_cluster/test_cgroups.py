"""The control groups of a local cluster, in folders that look like mounted hierarchies."""

import subprocess
from pathlib import Path

import pytest

from tools.local_cluster import cgroups


@pytest.fixture
def version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for controller in ("cpu", "memory"):
        (tmp_path / controller).mkdir()
    monkeypatch.setattr(cgroups, "MOUNT", tmp_path)
    return tmp_path


@pytest.fixture
def version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in (tmp_path, tmp_path / "cluster", tmp_path / "cluster" / "programs"):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.controllers").write_text("cpu memory")
    monkeypatch.setattr(cgroups, "MOUNT", tmp_path)
    return tmp_path


def test_a_process_enters_its_cgroup_where_each_controller_has_a_hierarchy(version_1: Path) -> None:
    cgroups.create_for_programs("cluster/programs", cpu_weight=2)
    cgroups.enter("cluster/programs", 4711)

    assert (version_1 / "cpu/cluster/programs/cgroup.procs").read_text() == "4711"


def test_a_process_enters_its_cgroup_where_there_is_one_hierarchy(version_2: Path) -> None:
    cgroups.create_for_programs("cluster/programs", cpu_weight=2)
    cgroups.enter("cluster/programs", 4711)

    assert (version_2 / "cluster/programs/cgroup.procs").read_text() == "4711"


def test_a_command_enters_its_cgroup_before_it_runs(version_1: Path) -> None:
    cgroups.create_for_programs("cluster/programs", cpu_weight=1)
    command = cgroups.entering("cluster/programs", ["sh", "-c", "echo $$ 'as is'"])

    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    entered = (version_1 / "cpu/cluster/programs/cgroup.procs").read_text()
    assert output == f"{entered.strip()} as is\n"


def test_only_cgroups_without_programs_of_their_own_delegate_controllers(version_2: Path) -> None:
    """In version 2, a cgroup that delegates controllers may hold no process."""
    cgroups.create_for_programs("cluster/programs", cpu_weight=2)

    assert (version_2 / "cluster/cgroup.subtree_control").read_text() == "+cpu +memory"
    assert not (version_2 / "cluster/programs/cgroup.subtree_control").exists()


def test_programs_weigh_as_much_as_was_asked_for(version_1: Path) -> None:
    for folder in ("cluster", "cluster/programs"):
        (version_1 / "cpu" / folder).mkdir(parents=True, exist_ok=True)
        (version_1 / "cpu" / folder / "cpu.shares").write_text("1024")
    cgroups.create_for_programs("cluster/programs", cpu_weight=2)

    assert (version_1 / "cpu/cluster/cpu.shares").read_text() == str(8 * 1024)
    assert (version_1 / "cpu/cluster/programs/cpu.shares").read_text() == str(2 * 1024)


def test_programs_may_weigh_a_part_of_the_default(version_1: Path) -> None:
    (version_1 / "cpu/cluster/programs").mkdir(parents=True)
    (version_1 / "cpu/cluster/programs/cpu.shares").write_text("1024")
    cgroups.create_for_programs("cluster/programs", cpu_weight=1 / 8)

    assert (version_1 / "cpu/cluster/programs/cpu.shares").read_text() == "128"
