"""Volumes of members: mounted for a test, and unmounted after it. Mounting needs root."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def run(*command: str) -> None:
    """Run a command; skip the test if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(command)}: {done.stderr}")


@contextlib.contextmanager
def volume_of_8_mib(at: Path) -> Iterator[None]:
    """Make a folder and mount a volume of 8 MiB there."""
    at.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(at))
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)
