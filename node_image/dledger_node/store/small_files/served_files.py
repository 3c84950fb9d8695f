"""The small files and the snapshots that an auditor may read."""

from pathlib import Path
from typing import BinaryIO

from dledger_formats.http.served_files import is_served


def open_served(folder: Path, name: str) -> BinaryIO:
    """Open a file for reading; blocks. It stays readable if it is replaced or removed meanwhile.

    Raises FileNotFoundError if there is no such file, OSError if it cannot be opened.
    """
    if not is_served(name):
        raise FileNotFoundError(f"{name} is not served")
    return (folder / name).open("rb")
