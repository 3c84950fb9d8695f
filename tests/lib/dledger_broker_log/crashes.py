"""Simulates what a crash of the machine may leave of files that were not synced."""

import random
import shutil
from pathlib import Path

BLOCK_BYTES = 64
"""Less than a page, so that small files have several blocks."""


def contents(folder: Path) -> dict[Path, bytes]:
    """Return every file below a folder with its content."""
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def crash(folder: Path, durable: dict[Path, bytes], chance: random.Random) -> None:
    """Replace the files by what may be left, if `durable` was on disk at the last sync.

    A file that was written since has, block by block, its old or its new content, or ends early. A
    file that was created or deleted since may or may not exist.
    """
    now = contents(folder)
    shutil.rmtree(folder)
    for path in sorted(durable.keys() | now.keys()):
        before, after = durable.get(path), now.get(path)
        if before == after:
            left = before
        elif before is None or after is None:
            left = chance.choice((before, after))
        else:
            left = _mixed(before, after, chance)
        if left is not None:
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(left)


def _mixed(before: bytes, after: bytes, chance: random.Random) -> bytes:
    size = chance.choice((len(before), len(after)))
    padded = before.ljust(size, b"\0")
    blocks = [
        chance.choice((padded, after))[at : at + BLOCK_BYTES] for at in range(0, size, BLOCK_BYTES)
    ]
    return b"".join(blocks)[:size]
