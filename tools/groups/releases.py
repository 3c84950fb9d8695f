"""Earlier releases of the programs, taken from the history of this repository.

All programs are pure Python, so a release is its source folders: a process that has them first on
its path runs that release with the libraries of this environment.
"""

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.local_cluster import cache
from tools.setup import ROOT

PREVIOUS: Final = "3f01861f3f9c304de31c600987db4d866a080f55"
"""The commit of the previous release, or of an earlier state until there is a release. Members of
this release and of that one must be able to form one group.
"""
FOLDERS: Final = ("formats", "node_image", "client")
_KIND: Final = "releases"
_CHECKOUTS: Final = "checkouts of releases"
_TIMEOUT_S: Final = 60
_SETTINGS: Final = """
from dataclasses import fields
from dledger_formats.settings import NodeSettings, variable_name
print(*(variable_name(field.name) for field in fields(NodeSettings)))
"""


class ReleaseMissingError(Exception):
    """An earlier release is not in this checkout's history; the message says which."""


@dataclass(frozen=True, slots=True)
class Release:
    """The programs of an earlier release."""

    commit: str
    python_path: str
    """The value of PYTHONPATH under which a process runs this release."""
    variables: frozenset[str]
    """The settings of members that this release knows; it refuses others."""

    def environment_of(self, environment: dict[str, str]) -> dict[str, str]:
        """Convert the environment of a member of the current release for a member of this one."""
        kept = {
            name: value
            for name, value in environment.items()
            if not name.startswith("DLEDGER_") or name in self.variables
        }
        return {**kept, "PYTHONPATH": self.python_path}


def previous_release() -> Release:
    """Return the previous release, unpacked in the cache. Raises ReleaseMissingError."""
    entry = cache.ensure(_KIND, PREVIOUS, lambda folder: _unpack(PREVIOUS, folder))
    python_path = os.pathsep.join(str(entry / name) for name in FOLDERS)
    listed = subprocess.run(
        [sys.executable, "-B", "-c", _SETTINGS],
        env={**os.environ, "PYTHONPATH": python_path},
        capture_output=True, text=True, check=True, timeout=_TIMEOUT_S,
    )  # fmt: skip
    return Release(PREVIOUS, python_path, frozenset(listed.stdout.split()))


def previous_checkout() -> Path:
    """Return all files of the previous release, from which its images can be built.

    Raises ReleaseMissingError.
    """
    return cache.ensure(_CHECKOUTS, PREVIOUS, lambda folder: _unpack(PREVIOUS, folder, ()))


def _unpack(commit: str, folder: Path, folders: Sequence[str] = FOLDERS) -> None:
    """Unpack these folders of a commit, or all files if none is named."""
    command = ["git", "-C", str(ROOT), "archive", commit, *folders]
    try:
        packed = subprocess.run(command, capture_output=True, check=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ReleaseMissingError(
            f"the previous release, commit {commit}, is not in the history of {ROOT}; fetch the "
            "whole history (git fetch --unshallow)"
        ) from error
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
