"""Archives of stores that real Java members, and brokers of RocketMQ, wrote."""

import tarfile
from pathlib import Path
from typing import Final

INDEX_BYTES_KEPT: Final = 3200
"""Almost all of the 160 MiB of each index file of a broker is a hole."""


def extract(archive: Path, folder: Path) -> None:
    """Extract an archive of this project's own; Debian 12's Python has no filters yet."""
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(folder, filter="data")
        else:
            tar.extractall(folder)


def extract_broker(archive: Path, member: str, folder: Path) -> Path:
    """Extract the DLedger folder of one broker; return its path."""
    prefix = f"store-{member}/"
    with tarfile.open(archive) as tar:
        for entry in tar:
            if entry.isfile() and entry.name.startswith(f"{prefix}dledger-"):
                path = folder / entry.name.removeprefix(prefix)
                path.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(entry)
                assert content is not None
                is_index = path.parent.name == "index"
                path.write_bytes(content.read(INDEX_BYTES_KEPT if is_index else None))
    return folder / f"dledger-{member}"
