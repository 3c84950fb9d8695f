"""Run `dledger-node store` in this process."""

import json
from pathlib import Path
from typing import Any

import pytest

from dledger_node.store_command import command


class Command:
    """Runs `dledger-node store -o json`, and keeps its output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.lines: list[dict[str, Any]] = []
        self.error = ""

    def __call__(self, name: str, folder: Path, *options: str) -> int:
        """Run a subcommand on a folder; return the exit code."""
        code = command.main([name, "-o", "json", *options, str(folder)])
        written = self._capsys.readouterr()
        self.lines = [json.loads(line) for line in written.out.splitlines()]
        self.error = written.err
        return code

    @property
    def summary(self) -> dict[str, Any]:
        """The last line of the output."""
        return self.lines[-1]

    def finding(self, kind: str) -> dict[str, Any]:
        """Return the only finding of a kind."""
        [found] = [line for line in self.lines if line.get("finding") == kind]
        return found
