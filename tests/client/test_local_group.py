"""`dledger group local`: real members that are started, killed and stopped."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dledger_client.cli import main
from dledger_client.commands.exits import ExitCode
from dledger_client.local.member import STOP_TIMEOUT_S
from dledger_client.local.processes import with_file
from dledger_client.sync import BlockingClient
from dledger_formats.admin_tokens import AdminTokens
from dledger_formats.protocol.membership_change import ChangeKind
from dledger_group.local_process import LocalGroupProcess
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.local


@contextlib.contextmanager
def ended_at_last(pids: Iterable[int]) -> Iterator[None]:
    """Kill what still runs of these processes at the end, also after a failure."""
    handles = [os.pidfd_open(pid) for pid in pids]
    try:
        yield
    finally:
        for handle in handles:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def put(file: Path, text: str) -> None:
    """Replace a file at once, so that nobody reads half of it."""
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(text)
    unfinished.replace(file)


def test_a_local_group_continues_after_its_leader_is_killed(tmp_path: Path) -> None:
    with LocalGroupProcess(tmp_path, 3) as group:
        leader = group.event("leader")
        with BlockingClient(group.servers, "local") as client:
            index = client.append(b"before").index
            entries = client.tail(index)
            assert next(entries).body == b"before"
            os.kill(group.started["members"][leader["leader"]]["pid"], signal.SIGKILL)

            assert group.event("leader")["term"] > leader["term"]
            assert client.get(index).body == b"before"
            assert client.append(b"after").index > index
            bodies = [next(entries).body for _ in range(2)]  # the new leader's empty entry first
            assert bodies == [b"", b"after"]
        restarted = group.event("restarted")

    assert (restarted["member"], restarted["reason"]) == (leader["leader"], "SIGKILL")


def test_a_member_that_is_out_of_service_is_named(tmp_path: Path) -> None:
    with (
        LocalGroupProcess(tmp_path, 1) as group,
        BlockingClient(group.servers, "local") as client,
    ):
        client.append_batch([b"entry"] * 10)
    data = tmp_path / "dledger-n0" / "data" / "00000000000000000000"
    raw = bytearray(data.read_bytes())
    raw[raw.index(b"entry")] ^= 1
    data.write_bytes(raw)

    with LocalGroupProcess(tmp_path, 1) as group:
        event = group.event("storage")

    assert (event["member"], event["state"]) == ("n0", "Damaged")
    assert event["reason"]


def test_a_member_whose_folder_belongs_to_another_group_is_named(tmp_path: Path) -> None:
    for name in ("one", "other"):
        with LocalGroupProcess(tmp_path / name, 1, 0, f"--group={name}") as group:
            group.event("leader")
    shutil.rmtree(tmp_path / "one" / "dledger-n0")
    (tmp_path / "other" / "dledger-n0").rename(tmp_path / "one" / "dledger-n0")

    with LocalGroupProcess(tmp_path / "one", 1, 0, "--group=one") as group:
        event = group.event("outOfService")

    assert event["member"] == "n0"
    assert "belongs to the group other, and this member to one" in event["reason"]


def test_a_local_group_demands_its_token_if_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalGroupProcess(tmp_path, 1, 1, "--admin-token") as group:
        group.event("leader")
        for name, value in group.started["environment"].items():
            monkeypatch.setenv(name, value)
        token_file = Path(os.environ["DLEDGER_CLIENT_ADMIN_TOKEN_FILE"])

        assert main(["member", "add", "n1"]) == ExitCode.OK
        monkeypatch.delenv("DLEDGER_CLIENT_ADMIN_TOKEN_FILE")
        assert main(["member", "promote", "n1"]) == ExitCode.REFUSED

    assert "--admin-token-file" in capsys.readouterr().err
    assert token_file.stat().st_mode & 0o077 == 0, "only its owner may read it"


def test_the_file_with_the_audit_token_follows_the_administration_token(tmp_path: Path) -> None:
    with LocalGroupProcess(tmp_path, 1, 0, "--admin-token") as group:
        group.event("leader")
        environment = group.started["environment"]
        admin, audit = (
            Path(environment[f"DLEDGER_CLIENT_{kind}_TOKEN_FILE"]) for kind in ("ADMIN", "AUDIT")
        )
        first = AdminTokens.parse(admin.read_bytes())
        assert AdminTokens.parse(audit.read_bytes()) == first.for_audits()
        both = AdminTokens(accepted=("y" * 40, first.current), version="2")
        replaced = audit.stat().st_ino
        put(admin, both.to_text())
        wait_for(
            lambda: AdminTokens.parse(audit.read_bytes()) == both.for_audits(),
            "the file with the audit token has followed",
        )
        put(admin, "too short\n")
        trouble = group.event("token")

    assert audit.stat().st_ino != replaced, "a reader may have found half of the file"
    assert AdminTokens.parse(audit.read_bytes()) == both.for_audits()
    assert audit.stat().st_mode & 0o077 == 0, "only its owner may read it"
    assert "line 1 is not a token" in trouble["reason"]
    assert "too short" not in trouble["reason"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_members_and_the_next_start_finds_the_log(
    tmp_path: Path, number: signal.Signals
) -> None:
    with LocalGroupProcess(tmp_path, 1) as group:
        pid = group.started["members"]["n0"]["pid"]
        with BlockingClient(group.servers, "local") as client:
            index = client.append(b"kept").index

        assert group.stop(number) == (0, "")
        assert not is_running(pid)

    with (
        LocalGroupProcess(tmp_path, 1) as group,
        BlockingClient(group.servers, "local") as client,
    ):
        assert client.get(index).body == b"kept"


def test_a_member_that_does_not_stop_is_named_and_a_second_signal_kills_it(tmp_path: Path) -> None:
    with LocalGroupProcess(tmp_path, 3) as group:
        group.event("leader")
        pid = group.started["members"]["n2"]["pid"]
        os.kill(pid, signal.SIGSTOP)
        group.process.send_signal(signal.SIGINT)
        assert group.process.stderr is not None
        output = group.process.stderr.readline()
        began_s = time.monotonic()

        assert group.stop(signal.SIGINT) == (0, "")
        took_s = time.monotonic() - began_s

    assert output == f"dledger: stopping n2 (process {pid}); Ctrl-C kills it\n"
    assert took_s < STOP_TIMEOUT_S / 2
    assert not is_running(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_group_that_was_started_to_ignore_a_signal_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    """As `nohup dledger group local &` is, at the end of a session."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        group = LocalGroupProcess(tmp_path, 1)
    finally:
        signal.signal(number, before)
    with group:
        group.event("leader")
        group.process.send_signal(number)
        os.kill(group.started["members"]["n0"]["pid"], signal.SIGKILL)

        assert group.event("restarted")["member"] == "n0"


def test_the_members_are_stopped_once_nobody_reads_the_events(tmp_path: Path) -> None:
    with LocalGroupProcess(tmp_path, 3) as group:
        leader = group.event("leader")["leader"]
        assert group.process.stdout is not None
        group.process.stdout.close()
        os.kill(group.started["members"][leader]["pid"], signal.SIGKILL)

        assert group.finish() == (
            1,
            "dledger: nobody reads the events any more, so the group was stopped\n",
        )

    assert with_file(tmp_path / "lock") == []


def test_the_other_members_are_stopped_before_a_group_ends_because_one_keeps_failing(
    tmp_path: Path,
) -> None:
    with LocalGroupProcess(tmp_path, 3) as group:
        group.event("leader")
    with (tmp_path / "dledger-n0" / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, _ = LocalGroupProcess(tmp_path, 3).finish()

    assert code == 1
    assert with_file(tmp_path / "lock") == []


def test_the_members_of_a_killed_group_are_named_with_the_command_that_stops_them(
    tmp_path: Path,
) -> None:
    with LocalGroupProcess(tmp_path / "one", 3, addable=1) as group:
        pids = {member: found["pid"] for member, found in group.started["members"].items()}
        for member, pid in pids.items():
            lock = tmp_path / "one" / f"dledger-{member}" / "lock"
            wait_for(
                lambda lock=lock, pid=pid: lock.exists() and str(pid) in lock.read_text(),
                f"{member} has opened its store",
            )
        with ended_at_last(pids.values()):
            group.stop(signal.SIGKILL)
            os.kill(pids.pop("n1"), signal.SIGKILL)
            living = ", ".join(f"{member} (process {pid})" for member, pid in pids.items())
            command = f"kill {' '.join(map(str, pids.values()))}"

            code, in_folder = LocalGroupProcess(tmp_path / "one", 3, addable=1).finish()

            assert code == 2
            assert f"is in use by {living}, which a group that was killed has left" in in_folder
            assert f"stop them with `{command}`" in in_folder
            subprocess.run(["sh", "-c", command], check=True)
            for pid in pids.values():
                wait_for(lambda pid=pid: not is_running(pid), "the remaining member has exited")


def test_a_port_that_a_member_of_a_killed_group_listens_on_is_named_with_its_process(
    tmp_path: Path,
) -> None:
    with LocalGroupProcess(tmp_path / "one", 1) as group:
        pid = group.started["members"]["n0"]["pid"]
        port = int(group.servers[0].rpartition(":")[2])
        with BlockingClient(group.servers, "local") as client:
            client.append(b"it listens")
        with ended_at_last([pid]):
            group.stop(signal.SIGKILL)

            code, err = LocalGroupProcess(tmp_path / "two", 1, 0, f"--port={port}").finish()

    assert code == 2
    assert f"cannot listen on port {port}: Address already in use by process {pid}" in err
    assert f"stop it with `kill {pid}`" in err
    wait_for(lambda: not is_running(pid), "the remaining member has exited")


def test_a_running_group_whose_members_have_the_ports_is_named_in_their_place(
    tmp_path: Path,
) -> None:
    with LocalGroupProcess(tmp_path / "one", 1) as group:
        pid = group.process.pid
        port = int(group.servers[0].rpartition(":")[2])
        with BlockingClient(group.servers, "local") as client:
            client.append(b"it listens")

        code, err = LocalGroupProcess(tmp_path / "two", 1, 0, f"--port={port}").finish()

    assert code == 2
    assert f"already in use by the local group of process {pid}; stop it with `kill {pid}`" in err


def test_a_member_that_keeps_failing_ends_the_group_with_its_last_log_line(tmp_path: Path) -> None:
    with LocalGroupProcess(tmp_path, 1) as group:
        group.event("leader")
    with (tmp_path / "dledger-n0" / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, err = LocalGroupProcess(tmp_path, 1).finish()

    assert (code, err.count("\n")) == (1, 1)
    assert "n0 exited 3 times right after starting" in err
    assert "is in use by" in err


def test_member_commands_grow_a_group_from_one_to_two_and_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def member(*arguments: str) -> dict[str, Any]:
        assert main(["member", *arguments, "-o", "json"]) == ExitCode.OK
        printed: dict[str, Any] = json.loads(capsys.readouterr().out)
        return printed

    with LocalGroupProcess(tmp_path / "data", members=1, addable=1) as group:
        for name, value in group.started["environment"].items():
            monkeypatch.setenv(name, value)
        group.event("leader")
        assert member("list")["addable"].keys() == {"n1"}
        assert member("add", "n1")["learners"] == ["n1"]
        wait_for(
            lambda: main(["status"]) == ExitCode.OK and "learner" in capsys.readouterr().out,
            "n1 reports that it is a learner",
        )
        for _ in range(2):
            assert member("promote", "n1")["voters"] == ["n0", "n1"]
        assert main(["append", "--body", "held by two"]) == ExitCode.OK
        assert main(["member", "list"]) == ExitCode.OK
        assert "n1      voter" in capsys.readouterr().out
        assert main(["member", "demote", "n1"]) == ExitCode.OK
        assert capsys.readouterr().out == "n1 is a learner; voters n0; learners n1\n"
        assert member("remove", "n1") == member("remove", "n1")
        with BlockingClient(group.servers, "local") as client:
            after = client.change_membership(ChangeKind.ADD_LEARNER, "n1")
            assert client.membership().learners == after.learners == ("n1",)
            assert client.change_membership(ChangeKind.REMOVE, "n1").learners == ()
        for arguments, reason in (
            (["remove", "n0"], "613 LAST_VOTER: the group would have no voter left: promote"),
            (
                ["promote", "n1"],
                "612 NO_SUCH_MEMBER: n1 does not belong to the group: add it first",
            ),
            (["add", "n7"], "612 NO_SUCH_MEMBER"),
        ):
            assert main(["member", *arguments]) == ExitCode.REFUSED
            assert reason in capsys.readouterr().err


def test_a_local_group_does_not_start_with_fewer_addable_members(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalGroupProcess(tmp_path / "data", members=1, addable=1) as group:
        group.event("leader")
    code = main(["group", "local", f"--data={tmp_path / 'data'}", "--members=1"])

    assert code == ExitCode.USAGE
    assert "--addable 1 or more" in capsys.readouterr().err
    with LocalGroupProcess(tmp_path / "data", members=1, addable=2) as group:
        group.event("leader")
