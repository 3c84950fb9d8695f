"""A cache of build results, keyed by their inputs.

An entry is built under a temporary name and renamed when complete. Later damage is detected by the
sizes of the entry's files, and the entry is built again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .commands import show
from .layout import cache_folder

# Entries unused for this long are removed when a new entry of their kind is built.
STALE_SECONDS = 14 * 24 * 3600
_INVENTORY = ".inventory.json"


def key(*inputs: str | bytes | Path) -> str:
    """Hash inputs; for a path, its content counts and its name does not."""
    digest = hashlib.sha256()
    for item in inputs:
        content = item.read_bytes() if isinstance(item, Path) else item
        data = content.encode() if isinstance(content, str) else content
        # The length distinguishes ("ab", "c") from ("a", "bc").
        digest.update(f"{len(data)}:".encode() + data)
    return digest.hexdigest()[:20]


@contextlib.contextmanager
def lock(path: Path, what: str, *, shared: bool = False) -> Iterator[None]:
    """Hold a file lock, which the kernel releases when this process ends for any reason."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    while True:
        with open(path, "w") as file:
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                show(f"waiting for another process that holds the lock on {what}")
                fcntl.flock(file, kind)
            # If the previous holder removed the file, this lock excludes no other process.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield
                return


def _sizes(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        # A link inside an image points to a different file on this machine.
        if path.is_file() and not path.is_symlink() and path.name != _INVENTORY
    }


def is_whole(entry: Path) -> bool:
    """Return whether an entry has exactly the files that were built, in their full sizes."""
    try:
        inventory = json.loads((entry / _INVENTORY).read_text())
    except (OSError, ValueError):
        return False
    return bool(inventory == _sizes(entry))


def find(kind: str, entry_key: str) -> Path | None:
    entry = cache_folder() / kind / entry_key
    return entry if is_whole(entry) else None


def ensure(kind: str, entry_key: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of an entry; if it is missing or damaged, `make` fills it."""
    entry = cache_folder() / kind / entry_key
    if not is_whole(entry):
        with lock(entry.parent / f".{entry_key}.lock", f"{kind} {entry_key}"):
            if not is_whole(entry):
                _make(entry, make)
    (entry / _INVENTORY).touch()
    return entry


def _make(entry: Path, make: Callable[[Path], None]) -> None:
    if entry.exists():
        show(f"{entry} is damaged: building it again")
    with tempfile.TemporaryDirectory(prefix=".building-", dir=entry.parent) as temporary:
        made = Path(temporary) / "entry"
        made.mkdir()
        make(made)
        (made / _INVENTORY).write_text(json.dumps(_sizes(made), indent=1))
        shutil.rmtree(entry, ignore_errors=True)
        made.rename(entry)
    _remove_stale(entry)


def _remove_stale(new: Path) -> None:
    oldest = time.time() - STALE_SECONDS
    for entry in new.parent.iterdir():
        inventory = entry / _INVENTORY
        if entry != new and inventory.exists() and inventory.stat().st_mtime < oldest:
            shutil.rmtree(entry, ignore_errors=True)
