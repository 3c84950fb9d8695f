"""Small files that are replaced as a whole."""

import os
from pathlib import Path

from dledger_node.store.segments.segment import sync_folder


def replace_file(path: Path, raw: bytes) -> None:
    """Replace a file, durably; blocks for two fsyncs.

    After an OSError the old file is in place and the new one may be or not.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)
