"""Folders in volumes, as users name them."""

import posixpath
import re
from typing import Final

from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader

_NOT_IN_PATHS: Final = re.compile(r"[$\x00-\x1f\x7f]")
"""The kubelet expands `$(NAME)` in the command that gets the path."""


def read_path(claim: SpecReader, example: str) -> str:
    """Return `path`, without slashes at its ends; empty for the root. Raises InvalidSpecError."""
    path = claim.text("path").strip("/")
    is_normal = posixpath.normpath(path or ".") == (path or ".") and not path.startswith("..")
    if not is_normal or _NOT_IN_PATHS.search(path):
        raise InvalidSpecError(
            f"{claim.path}.path is {claim.text('path')!r}; it must be a folder of the volume, such "
            f"as {example}, without '$' and control characters"
        )
    return path
