"""Commands that open a named pipe say that they wait, since nobody may ever open its other end."""

import asyncio
import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.commands import notice
from tests.client.terminals import PROGRAM, environment

pytestmark = pytest.mark.usefixtures("group_in_environment")
SAID_S_MAX = 30.0
READERS = {
    "lines": ["append"],
    "whole files": ["append", "--whole"],
    "an export": ["import"],
    "a token": ["transfer", "n1", "--admin-token-file"],
}


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@contextlib.contextmanager
def waiting(arguments: list[str]) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Start a command; yield its process, and the first line that it writes to standard error."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment({}),
    )  # fmt: skip
    try:
        assert process.stderr is not None
        is_told, _, _ = select.select([process.stderr], [], [], SAID_S_MAX)
        yield process, process.stderr.readline() if is_told else ""
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("command", READERS.values(), ids=READERS)
def test_a_command_says_that_nobody_writes_to_its_named_pipe(
    command: list[str], pipe: Path
) -> None:
    with waiting([*command, str(pipe)]) as (process, told):
        assert told == (
            f"dledger: waiting for {pipe}, 1 s: no process has opened this named pipe for writing\n"
        )
        assert process.poll() is None


def test_a_command_goes_on_once_somebody_writes(pipe: Path) -> None:
    with waiting(["append", str(pipe)]) as (process, _):
        pipe.write_text("one\ntwo\n")
        _, rest = process.communicate(timeout=60)

    assert process.returncode == 0
    assert rest.startswith("acknowledged    2\n")


def test_an_export_says_that_nobody_reads_its_named_pipe(pipe: Path) -> None:
    with waiting(["export", str(pipe)]) as (process, told):
        exported = pipe.read_bytes()
        process.communicate(timeout=60)

    assert told == (
        f"dledger: waiting for {pipe}, 1 s: no process has opened this named pipe for reading\n"
    )
    assert process.returncode == 0
    assert exported.startswith(b"DLEXPORT")


async def test_a_group_that_can_be_used_does_not_erase_what_is_said_of_a_pipe(
    pipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    shown = ""
    async with notice.shown("g0", 30, lambda: None), notice.opening(pipe, notice.WRITING):
        while "2 s: no process" not in shown:
            await asyncio.sleep(notice.POLL_S)
            shown += capsys.readouterr().err

    blank = " " * 199
    assert blank not in shown
    assert capsys.readouterr().err == f"\r{blank}\r"
