"""Runs a program, `dledger` unless it is another, on a terminal of a given width or without one."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping

PROGRAM = "import sys; from dledger_client.cli import main; sys.exit(main())"


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return kept | {"TERM": "xterm-256color"} | dict(extra)


def on_terminal(
    arguments: list[str], columns: int, extra: Mapping[str, str], program: str = PROGRAM
) -> tuple[int, str]:
    """Run a command on a terminal of so many columns; return its exit code and what it shows."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=terminal, stdout=terminal, stderr=terminal, env=environment(extra),
    ) as process:  # fmt: skip
        os.close(terminal)
        shown = b""
        try:
            while piece := os.read(screen, 65536):
                shown += piece
        except OSError:  # the last program that had the terminal has ended
            pass
        code = process.wait(timeout=60)
    os.close(screen)
    return code, shown.decode(errors="replace").replace("\r\n", "\n")


def run(arguments: list[str], extra: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True, encoding="utf-8", env=environment(extra), check=False, timeout=60,
    )  # fmt: skip
