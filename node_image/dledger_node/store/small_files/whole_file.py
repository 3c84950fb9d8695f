"""Atomic replacement of small files."""

import os
from pathlib import Path

from dledger_node.store.segments.segment import sync_folder


def replace_file(path: Path, raw: bytes) -> None:
    """Replace a file atomically and durably; blocks for two fsyncs.

    After an OSError either the old or the new file is in place.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)
