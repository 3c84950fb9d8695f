"""Run short commands; on failure, raise an error that shows their output."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from .errors import LocalClusterError

LINES_SHOWN = 25


def run(
    *command: str | os.PathLike[str],
    input_text: str | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> str:
    """Run a command and return its standard output; raises LocalClusterError if it fails."""
    words = [os.fspath(word) for word in command]
    try:
        done = subprocess.run(
            words,
            input=input_text,
            stdin=subprocess.DEVNULL if input_text is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            env=None if environment is None else {**os.environ, **environment},
            timeout=timeout_seconds,
            cwd=folder,
            check=False,
        )
    except FileNotFoundError as error:
        raise LocalClusterError(f"{words[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise LocalClusterError(f"timed out after {timeout_seconds} s: {_short(words)}") from error
    if done.returncode != 0:
        output = "\n".join((done.stdout + done.stderr).splitlines()[-LINES_SHOWN:])
        raise LocalClusterError(
            f"failed with exit code {done.returncode}: {_short(words)}\n{output}"
        )
    return done.stdout


def succeeds(*command: str | os.PathLike[str], timeout_seconds: float | None = None) -> bool:
    try:
        run(*command, timeout_seconds=timeout_seconds)
    except LocalClusterError:
        return False
    return True


def show(message: str) -> None:
    """Print a progress message."""
    print(message, flush=True)


def _short(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= 200 else text[:200] + " ..."
