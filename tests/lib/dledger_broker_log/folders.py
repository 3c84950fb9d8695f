"""Folders of tests that run many examples."""

import tempfile
from collections.abc import Iterator
from pathlib import Path


def fresh_folder() -> Iterator[Path]:
    """Yield a folder for one example of a property."""
    memory = Path("/dev/shm")  # where a sync costs nothing
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name) / "queues"
