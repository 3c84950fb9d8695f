"""Damage to the segments of a store that is not open."""

from pathlib import Path

from dledger_formats.log import disk


def poke(folder: Path, pos: int, data: bytes, *, segment_bytes: int = 4096) -> None:
    """Overwrite bytes at a position of the data or index files in `folder`."""
    start = pos // segment_bytes * segment_bytes
    with (folder / disk.file_name(start)).open("r+b") as file:
        file.seek(pos - start)
        file.write(data)


def flip(folder: Path, pos: int, bits: int = 0x55, *, segment_bytes: int = 4096) -> None:
    """Flip bits of one byte."""
    start = pos // segment_bytes * segment_bytes
    byte = (folder / disk.file_name(start)).read_bytes()[pos - start]
    poke(folder, pos, bytes([byte ^ bits]), segment_bytes=segment_bytes)
