"""The error that this package raises deliberately, and the text that shows a program's log."""

from __future__ import annotations

from pathlib import Path

LOG_LINES_SHOWN = 25


class LocalClusterError(Exception):
    """An error that the user can act on; its text is meant to be shown without a traceback."""


def with_log(message: str, log: Path) -> str:
    """Append the name and the last lines of a log file to a message."""
    try:
        text = log.read_text(errors="replace")
    except OSError as error:
        return f"{message}\n  (no log: {error})"
    lines = text.splitlines()[-LOG_LINES_SHOWN:]
    shown = "\n".join(f"  | {line}" for line in lines) or "  | (empty)"
    return f"{message}\n  last lines of {log}:\n{shown}"
