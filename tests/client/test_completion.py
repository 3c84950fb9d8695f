"""Tab completion of `dledger` in interactive shells on a terminal, set up as the help says."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SHELLS = {
    "bash": (["bash", "--noprofile", "--norc", "-i"], 'eval "$(dledger completion bash)"'),
    "zsh": (
        ["zsh", "--no-rcs", "-i"],
        'autoload -Uz compinit && compinit -D && eval "$(dledger completion zsh)"',
    ),
    "fish": (["fish", "--no-config", "-i"], "dledger completion fish | source"),
}
"""How each shell is started without the user's files, and what the help says to put into them."""
TIMEOUT_S = 60
PROGRAM = "import sys\n\nfrom dledger_client.cli import main\n\nsys.exit(main())\n"
ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>78]|\][^\x07]*\x07)")
pytestmark = [pytest.mark.local, pytest.mark.usefixtures("group_in_environment")]


class Terminal:
    """A shell on a terminal, with what it has shown since the last key."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._screen, terminal = pty.openpty()
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *command],
            stdin=terminal, stdout=terminal, stderr=terminal, env=environment,
        )  # fmt: skip
        os.close(terminal)
        self._shown = b""

    def type(self, keys: str) -> None:
        """Forget what was shown, and press keys."""
        self._shown = b""
        os.write(self._screen, keys.encode())

    def wait_for(self, pattern: str) -> str:
        """Return what is shown once it matches; fail with it if that takes too long."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not re.search(pattern, self.shown):
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"no {pattern!r} in {self.shown!r}"
            if select.select([self._screen], [], [], left_s)[0]:
                self._shown += os.read(self._screen, 65536)
        return self.shown

    @property
    def shown(self) -> str:
        """What was shown since the last key, without the codes that move the cursor."""
        return ESCAPES.sub("", self._shown.decode(errors="replace"))

    def close(self) -> None:
        """End the shell."""
        self._process.kill()
        self._process.wait()
        os.close(self._screen)


@pytest.fixture(params=SHELLS)
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    """A shell that has been set up for completion."""
    command, setup = SHELLS[request.param]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    program = tmp_path / "bin" / "dledger"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{PROGRAM}")
    program.chmod(0o755)
    environment = os.environ | {
        "HOME": str(tmp_path), "TERM": "xterm", "PATH": f"{program.parent}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path),
    }  # fmt: skip
    terminal = Terminal(command, environment)
    try:
        terminal.type(f'{setup}; echo is""ready\n')
        terminal.wait_for(r"isready\s")
        yield terminal
    finally:
        terminal.close()


def test_tab_completes_a_command(terminal: Terminal) -> None:
    terminal.type("dledger transf\t")

    terminal.wait_for(r"transfer ")


def test_tab_completes_an_option(terminal: Terminal) -> None:
    terminal.type("dledger tail --cou\t")

    terminal.wait_for(r"--count ")


def test_tab_lists_the_members_of_the_group(terminal: Terminal) -> None:
    terminal.type("dledger transfer n\t\t")

    shown = terminal.wait_for(r"(n\d\s+){2}n\d")

    assert set(re.findall(r"n\d", shown)) == {"n0", "n1", "n2"}
