"""`dledger` on terminals of several widths, without one, with NO_COLOR and in the C locale."""

import argparse
import asyncio
import re
import sys
from pathlib import Path

import pytest

from dledger_client.commands import printing, status
from dledger_fake_server.group import Group
from dledger_wire.accepting import close_accepting
from tests.client.terminals import on_terminal, run

ESCAPE = "\x1b"
NAME = "caf\u00e9 \u2013 \u65e5\u672c"
COMMANDS = {
    "group": ["group"],
    "members": ["member", "list"],
    "get": ["get", "0..1"],
    "json": ["get", "0..1", "-o", "json"],
    "append": ["append", "--body", "x"],
    "health": ["health"],
    "status": ["status", "--http", "127.0.0.1:1"],
    "help": ["--help"],
}
CODES = {"status": 5}
pytestmark = pytest.mark.usefixtures("group_in_environment")


@pytest.fixture(autouse=True)
def log(group_in_thread: Group) -> None:
    group_in_thread.log = [NAME.encode(), b"second"]


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_fits_a_terminal(name: str, columns: int) -> None:
    code, shown = on_terminal(COMMANDS[name], columns, {})

    assert code == CODES.get(name, 0), shown
    assert "Traceback" not in shown
    if name in ("json", "status"):  # a line of JSON, and the reason of an error, have any length
        return
    assert max(map(len, shown.splitlines())) <= columns, shown


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_writes_no_escape_without_a_terminal(name: str) -> None:
    done = run(COMMANDS[name], {"PYTHONUTF8": "1"})

    assert done.returncode == CODES.get(name, 0), done.stderr
    assert ESCAPE not in done.stdout + done.stderr
    assert "\r" not in done.stdout + done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_writes_no_color_when_told(name: str) -> None:
    _, shown = on_terminal(COMMANDS[name], 80, {"NO_COLOR": "1"})

    assert not re.search(r"\x1b\[[0-9;]*m", shown)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_works_in_the_c_locale(name: str) -> None:
    done = run(COMMANDS[name], {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})

    assert done.returncode == CODES.get(name, 0), done.stderr
    assert "Traceback" not in done.stderr
    if name == "get":
        assert done.stdout.startswith(NAME)
    if name == "json":
        assert done.stdout.isascii()


@pytest.mark.parametrize("columns", [40, 80])
def test_a_table_with_very_long_names_has_a_line_for_each_name(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names longer than the terminal are not cut: they are there to be copied."""
    name, address = "n" * 90, "host." * 20 + ":40911"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", f"{columns}")

    printing.write_table([["MEMBER", "ROLE", "ADDRESS"], [name, "", address], ["n1", "x", "y"]])

    assert capsys.readouterr().out == (
        f"MEMBER   {name}\nROLE\nADDRESS  {address}\n\nMEMBER   n1\nROLE     x\nADDRESS  y\n\n"
    )


def test_a_bar_fits_a_narrow_terminal(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("line\n" * 2000)

    code, shown = on_terminal(["append", "--progress", str(path)], 40, {})

    assert code == 0
    assert "100%" in shown
    assert max(len(line) for line in re.split("[\r\n]", shown)) <= 40


async def screens_at_requests(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Watch a page on a terminal; return what was written before each of the first requests."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    written: list[str] = []
    is_enough = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        written.append(capsys.readouterr().out)
        if len(written) == 3:
            is_enough.set()
        writer.write(b"HTTP/1.0 404 Not Found\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        page = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        arguments = argparse.Namespace(http=page, http_port=None, group="g0", output="text")
        arguments.watch = 0.001
        watching = asyncio.create_task(status.run(arguments))
        await is_enough.wait()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await close_accepting(server)
    return written[:3]


async def test_a_watched_status_stays_on_the_terminal_until_the_next_one_is_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    before, *screens = await screens_at_requests(capsys, monkeypatch)

    assert before == ""
    for screen in screens:
        blank, clear, shown = screen.partition("\x1b[H\x1b[2J")
        assert (blank, bool(clear)) == ("", True)
        assert re.fullmatch(r"\d\d:\d\d:\d\d\nMEMBER[^\x1b]* HTTP 404\n", shown)


async def test_a_watched_status_clears_no_dumb_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    _, screen, _ = await screens_at_requests(capsys, monkeypatch)

    assert ESCAPE not in screen
    assert re.match(r"\d\d:\d\d:\d\d\nMEMBER", screen)
