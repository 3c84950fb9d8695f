"""Up to which entry the consume queues are complete on disk: the file `checkpoint` beside them.

offset size field            all numbers big-endian and signed, except the checksum
     0    8 magic            b"DLQUEUES"
     8    4 version          1
    12    8 index            units of all messages up to this entry are on disk
    20    8 term             term, position and chain CRC of that entry, which identify the log
    28    8 pos
    36    8 chain_crc
    44    4 CRC-32           of all bytes before it
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

from dledger_broker.errors import QueueFilesError
from dledger_formats.log.checksum import crc32
from dledger_node.store.segments.segment import sync_folder
from dledger_node.store.small_files.whole_file import replace_file

FILE_NAME: Final = "checkpoint"
_MAGIC: Final = b"DLQUEUES"
_VERSION: Final = 1
_FIELDS: Final = struct.Struct(">8siqqqq")
_CRC: Final = struct.Struct(">I")
FILE_BYTES: Final = _FIELDS.size + _CRC.size

assert FILE_BYTES == 48


class Mark(NamedTuple):
    """One entry of one log. Two logs with the same mark have the same entries up to it."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed here
    term: int
    pos: int
    chain_crc: int


def save(folder: Path, mark: Mark) -> None:
    """Replace the file atomically and durably. Raises QueueFilesError."""
    raw = _FIELDS.pack(_MAGIC, _VERSION, *mark)
    try:
        replace_file(folder / FILE_NAME, raw + _CRC.pack(crc32(raw)))
    except OSError as error:
        raise QueueFilesError(f"cannot save {folder / FILE_NAME}: {error}") from error


def load(folder: Path) -> Mark | None:
    """Read the file; None if it is missing, damaged or of another version."""
    try:
        with (folder / FILE_NAME).open("rb") as file:
            raw = file.read(FILE_BYTES + 1)
    except OSError:
        return None
    if len(raw) != FILE_BYTES or raw[-_CRC.size :] != _CRC.pack(crc32(raw[: -_CRC.size])):
        return None
    magic, version, *numbers = _FIELDS.unpack_from(raw)
    return Mark(*numbers) if (magic, version) == (_MAGIC, _VERSION) else None


def remove(folder: Path) -> None:
    """Remove the file durably; the queues are then rebuilt. Raises QueueFilesError."""
    try:
        (folder / FILE_NAME).unlink(missing_ok=True)
        sync_folder(folder)
    except OSError as error:
        raise QueueFilesError(f"cannot remove {folder / FILE_NAME}: {error}") from error
