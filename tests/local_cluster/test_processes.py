"""Starting and stopping programs: only started programs are ever stopped."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.local_cluster import processes, waiting
from tools.local_cluster.processes import Identity

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    processes.stop(processes.owned_by(tmp_path), stop_seconds=0)


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    waiting.wait_until(what, condition, deadline_seconds=10, poll_seconds=0.01)


def start(owner: Path, *command: str) -> Identity:
    return processes.start(
        command, record=owner / "run" / "it.json", log=owner / "it.log", owner=owner
    )


def test_the_start_time_is_found_after_any_program_name() -> None:
    fields = " ".join(["S", *map(str, range(4, 53))])
    assert processes.parse_stat(f"12 (a) b (c)) {fields}") == ("S", 22)


def test_a_started_program_outlives_its_starter_in_a_session_of_its_own(owner: Path) -> None:
    identity = start(owner, "sleep", "60")
    assert processes.read_record(owner / "run" / "it.json") == identity
    # The program creates its session after `start` has returned.
    wait_until("it has its own session", lambda: os.getsid(identity.pid) == identity.pid)
    parent = Path(f"/proc/{identity.pid}/stat").read_text().rpartition(")")[2].split()[1]
    assert int(parent) != os.getpid()


def test_stop_returns_after_the_program_has_ended(owner: Path) -> None:
    identity = start(owner, "sleep", "60")
    processes.stop_recorded([owner / "run" / "it.json"])
    assert not processes.is_running(identity)
    assert not (owner / "run" / "it.json").exists()


def test_a_program_that_ignores_sigterm_is_killed(owner: Path) -> None:
    identity = start(owner, "sh", "-c", "trap '' TERM; echo deaf; sleep 60 & wait; wait")
    wait_for_text(owner / "it.log", "deaf")
    processes.stop([identity], stop_seconds=0.2)
    assert not processes.is_running(identity)


def wait_for_text(log: Path, text: str) -> None:
    wait_until(f"{log} has {text}", lambda: text in log.read_text())


def test_another_process_with_the_same_id_is_not_stopped(owner: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as bystander:
        identity = processes.identify(bystander.pid)
        assert identity is not None
        former = dataclasses.replace(identity, start_ticks=identity.start_ticks - 1)
        before_boot = dataclasses.replace(identity, boot_id="another")
        for stranger in (former, before_boot):
            assert not processes.is_running(stranger)
            processes.stop([stranger], stop_seconds=0)
        assert bystander.poll() is None
        bystander.kill()


def test_a_zombie_is_not_running() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert processes.identify(child.pid) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"pid": 1}'])
def test_a_damaged_record_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "it.json").write_text(text)
    assert processes.read_record(tmp_path / "it.json") is None


def test_a_program_without_a_record_is_found_by_its_owner(owner: Path) -> None:
    identity = start(owner, "sleep", "60")
    (owner / "run" / "it.json").unlink()
    assert processes.owned_by(owner) == [identity]
    assert processes.owned_by(owner / "other") == []


def test_children_are_found_only_of_the_same_process(owner: Path) -> None:
    identity = start(owner, "sh", "-c", "sleep 60 & echo started; wait")
    wait_for_text(owner / "it.log", "started")
    child = processes.children(identity)
    assert len(child) == 1
    os.kill(child[0].pid, signal.SIGKILL)
    earlier = dataclasses.replace(identity, start_ticks=0)
    assert processes.children(earlier) == []


def test_the_output_of_a_program_is_appended_to_its_log(owner: Path) -> None:
    (owner / "it.log").write_text("before\n")
    start(owner, "sh", "-c", "echo out; echo err >&2; exec sleep 60")
    wait_for_text(owner / "it.log", "err")
    assert (owner / "it.log").read_text() == "before\nout\nerr\n"


def test_a_record_holds_the_identity_of_the_process(owner: Path) -> None:
    start(owner, "sleep", "60")
    record = json.loads((owner / "run" / "it.json").read_text())
    assert set(record) == {"pid", "start_ticks", "boot_id"}
