"""Damage a log as disks and people do; the manifest of `layout` does not change."""

from dataclasses import replace
from pathlib import Path

from dledger_formats.log import disk
from dledger_logs.layout import Log

# Offset and size of every field of an entry's header.
HEADER_FIELDS = {
    "magic": (0, 4),
    "size": (4, 4),
    "index": (8, 8),
    "term": (16, 8),
    "pos": (24, 8),
    "channel": (32, 4),
    "chain_crc": (36, 4),
    "body_crc": (40, 4),
    "body_size": (44, 4),
}


def flip_header(log: Log, index: int, field: str, bit: int) -> None:
    """Flip one bit of a header's field; bit 0 is the lowest."""
    start, size = HEADER_FIELDS[field]
    byte, low = divmod(bit, 8)
    place = log.place(index)
    _flip(log.data_path(place.segment), place.offset + start + size - 1 - byte, 1 << low)


def flip_body(log: Log, index: int, byte: int = 0, mask: int = 1) -> None:
    """Flip bits of one byte of a body."""
    place = log.place(index)
    at = place.offset + disk.ENTRY_HEADER_SIZE + byte
    assert at < place.offset + place.size
    _flip(log.data_path(place.segment), at, mask)


def flip_unit(log: Log, index: int, byte: int = 11, mask: int = 1) -> None:
    """Flip bits of one byte of an index unit; byte 11 is the lowest of `pos`."""
    path, at = log.unit_place(index)
    _flip(path, at + byte, mask)


def zero(log: Log, first_index: int, last_index: int, *, skip: int = 0) -> None:
    """Zero everything from `skip` bytes into the first of these entries to the end of the last.

    Both must be in the same segment.
    """
    first, last = log.place(first_index), log.place(last_index)
    assert first.segment == last.segment
    start = first.offset + skip
    overwrite(log.data_path(first.segment), start, bytes(last.offset + last.size - start))


def swap(log: Log, one: int, other: int) -> None:
    """Exchange the bytes of two entries of equal size."""
    a, b = log.place(one), log.place(other)
    assert a.size == b.size
    a_bytes, b_bytes = log.entry_bytes(one), log.entry_bytes(other)
    overwrite(log.data_path(a.segment), a.offset, b_bytes)
    overwrite(log.data_path(b.segment), b.offset, a_bytes)


def truncate(log: Log, index: int) -> None:
    """End the data file where this entry begins."""
    place = log.place(index)
    with log.data_path(place.segment).open("r+b") as file:
        file.truncate(place.offset)


def remove_front(log: Log, count: int) -> Log:
    """Remove the first data files, as retention does; return the log that is left."""
    removed = log.segments[:count]
    for name in removed:
        log.data_path(name).unlink()
    return replace(log, places=[each for each in log.places if each.segment not in removed])


def remove_index(log: Log) -> None:
    """Remove every index file."""
    for path in (log.root / disk.INDEX_FOLDER).iterdir():
        path.unlink()


def _flip(path: Path, at: int, mask: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
    overwrite(path, at, bytes([old ^ mask]))


def overwrite(path: Path, at: int, raw: bytes) -> None:
    """Overwrite bytes of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(raw)
