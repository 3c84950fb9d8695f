"""Atomic replacement of small files."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from dledger_node.store.segments.segment import disk_error, sync_folder

T = TypeVar("T")


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


@contextlib.contextmanager
def saving(path: Path) -> Iterator[None]:
    """Turn an OSError of a file's replacement into a StoreError; StoreFullError on a full volume.

    Either the old or the new file is then in place.
    """
    try:
        yield
    except OSError as error:
        raise disk_error(f"cannot save {path}", error) from error


def load_if_sound(path: Path, bytes_max: int, decode: Callable[[bytes], T]) -> T | None:
    """Read a file that the store can do without; None if it is missing or damaged.

    `decode` receives at most `bytes_max` + 1 bytes, and raises ValueError on a damaged file.
    """
    try:
        with path.open("rb") as file:
            return decode(file.read(bytes_max + 1))
    except (OSError, ValueError):
        return None
