"""`dledger-audit` and its subcommands as programs in this process."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeAlias

import pytest
from pyspark import SparkContext

from dledger_audit import main as audit_program
from dledger_audit.compaction import command as compaction_program

Run: TypeAlias = Callable[..., tuple[int, str, str]]
"""Runs the program; returns its exit code, and what it wrote to its two outputs."""


def running_on(
    context: SparkContext, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Return a function that runs the program with a Spark that has started already."""
    for module in (audit_program, compaction_program):
        monkeypatch.setattr(module, "started", lambda *_: nullcontext(context))
    monkeypatch.setattr(compaction_program, "session", lambda _, **_named: nullcontext(context))

    def program(*arguments: str) -> tuple[int, str, str]:
        code = audit_program.main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return program
