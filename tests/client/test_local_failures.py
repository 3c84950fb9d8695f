"""A local group whose members cannot be started, or crash: the message, and what is kept."""

import asyncio
from pathlib import Path

import pytest

from dledger_client.cli import main
from dledger_client.local.errors import MemberFailedError
from dledger_client.local.folder import GroupShape
from dledger_client.local.group import LocalGroup
from tools.groups.ports import consecutive_ports

ONE = GroupShape(group="local", members=1)


def run_members_with(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger_client.local.group.member_program", lambda _: program)
    monkeypatch.setattr("dledger_client.local.member.RESTART_PAUSE_S", 0)


def test_a_program_that_cannot_be_started_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with a script whose interpreter is gone."""
    run_members_with(tmp_path / "missing", monkeypatch)
    options = ["--members=1", f"--port={consecutive_ports(2)}", f"--data={tmp_path / 'data'}"]

    assert main(["group", "local", *options]) == 1
    assert capsys.readouterr().err == (
        f"dledger: cannot start {tmp_path}/missing: [Errno 2] No such file or directory\n"
    )


async def test_what_a_member_said_before_its_restart_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "crashing"
    program.write_text("#!/bin/sh\necho crashed as $$\nexit 7\n")
    program.chmod(0o755)
    run_members_with(program, monkeypatch)

    with pytest.raises(MemberFailedError, match=r"3 times right after starting.*crashed as"):
        async with LocalGroup(ONE, tmp_path / "data", first_port=consecutive_ports(2)):
            await asyncio.Event().wait()

    said = [(tmp_path / "data" / name).read_text() for name in ("n0.log.1", "n0.log")]
    assert all(text.startswith("crashed as ") for text in said)
    assert said[0] != said[1]
