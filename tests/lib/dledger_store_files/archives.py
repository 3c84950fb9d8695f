"""Archives of stores that real Java members wrote."""

import tarfile
from pathlib import Path


def extract(archive: Path, folder: Path) -> None:
    """Extract an archive of this project's own; Debian 12's Python has no filters yet."""
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(folder, filter="data")
        else:
            tar.extractall(folder)
