"""The removals from the front of the log, on disk: the file `removals`, beside the checkpoint.

    {"firstIndex":0,"lastIndex":411,"rule":"Size",...}  a `Removal` on each line, oldest first
    #crc32=0badcafe                                     of all lines before

The removals follow each other without a gap, from entry 0 on. They let an auditor distinguish a
front that was removed on purpose from one that was lost; a member itself never needs the file.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dledger_formats import json_objects
from dledger_formats.http.retention import Removal
from dledger_formats.log.checksum import crc32
from dledger_node.store.small_files.whole_file import load_if_sound, replace_file, saving

FILE_NAME: Final = "removals"
REMOVALS_MAX: Final = 100
FILE_BYTES_MAX: Final = 64 * 1024
_CHECKSUM: Final = b"#crc32="


def save(folder: Path, removals: Sequence[Removal]) -> None:
    """Replace the file atomically and durably; blocks for two fsyncs. Raises as `saving` does."""
    path = folder / FILE_NAME
    with saving(path):
        replace_file(path, encode(removals))


def load(folder: Path) -> tuple[Removal, ...] | None:
    """Read the file; None if it is missing or damaged."""
    return load_if_sound(folder / FILE_NAME, FILE_BYTES_MAX, decode)


def encode(removals: Sequence[Removal]) -> bytes:
    """Encode the file."""
    lines = b"".join(json_objects.encode(removal) + b"\n" for removal in removals)
    return lines + b"%s%08x\n" % (_CHECKSUM, crc32(lines))


def decode(raw: bytes) -> tuple[Removal, ...]:
    """Decode the file. Raises ValueError if it is damaged."""
    if len(raw) > FILE_BYTES_MAX:
        raise ValueError(f"the file has more than {FILE_BYTES_MAX} bytes")
    lines, mark, checksum = raw.rpartition(_CHECKSUM)
    if not mark or checksum != b"%08x\n" % crc32(lines):
        raise ValueError("the checksum does not match")
    removals = tuple(json_objects.decode(Removal, line) for line in lines.splitlines())
    next_index = 0
    for removal in removals:
        if removal.first_index != next_index or removal.last_index < next_index:
            raise ValueError(f"the removals have a gap before entry {removal.first_index}")
        next_index = removal.last_index + 1
    if len(removals) > REMOVALS_MAX:
        raise ValueError(f"the file has {len(removals)} removals; at most {REMOVALS_MAX} are kept")
    return removals
