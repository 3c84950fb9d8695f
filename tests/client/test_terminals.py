"""`dledger` on terminals of several widths, without one, with NO_COLOR and in the C locale."""

import re
from pathlib import Path

import pytest

from dledger_fake_server.group import Group
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


def test_a_bar_fits_a_narrow_terminal(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("line\n" * 2000)

    code, shown = on_terminal(["append", "--progress", str(path)], 40, {})

    assert code == 0
    assert "100%" in shown
    assert max(len(line) for line in re.split("[\r\n]", shown)) <= 40
