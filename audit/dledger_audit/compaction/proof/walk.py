"""Walk over an archive's log: each entry with every check of its form.

The archive's layout has one valid form, because it was written from scratch: files follow each
other from position 0, or from the second file's if the log begins after entry 0; records lie end to
end, a blank ends each file but the last, everything after it is zero, and all entries are covered
by checksums.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from dledger_audit.compaction.proof.found import Found
from dledger_formats.log import disk
from dledger_formats.log.disk import DamagedRecordError, EntryHeader

BLOCK_BYTES: Final = 32 << 20


class ArchivedEntry(NamedTuple):
    """An entry of the archive whose record is sound."""

    header: EntryHeader
    body: bytes


class Walk:
    """Reads the archive's entries in order, in blocks of BLOCK_BYTES."""

    def __init__(self, log: Path, segment_bytes: int, index_bytes: int, found: Found) -> None:
        self._log = log
        self._segment_bytes = segment_bytes
        self._index_bytes = index_bytes
        self._found = found
        self._chain_crc: int | None = None
        self._next_index: int | None = None

    def entries(self, first_index: int) -> Iterator[ArchivedEntry]:
        """Yield the sound entries; report all others."""
        self._next_index, self._chain_crc = first_index, 0
        units = _Units(self._log / disk.INDEX_FOLDER, self._index_bytes)
        paths = sorted((self._log / disk.DATA_FOLDER).iterdir())
        for number, path in enumerate(paths):
            start = (number + (first_index > 0)) * self._segment_bytes
            if path.name != disk.file_name(start) or path.stat().st_size != self._segment_bytes:
                self._found.add("wrong_place", -1, f"{path.name}: its name or length is wrong")
                return
            is_last = number == len(paths) - 1
            for entry in self._of_segment(path, start, is_last=is_last):
                if units.read(entry.header.index) != _unit_of(entry.header):
                    index = entry.header.index
                    self._found.add("wrong_place", index, f"the index unit of entry {index}")
                yield entry

    def _of_segment(self, path: Path, start: int, *, is_last: bool) -> Iterator[ArchivedEntry]:
        with path.open("rb") as file:
            at, block, block_at = 0, b"", 0
            while at < self._segment_bytes:
                if at + disk.ENTRY_SIZE_MAX > block_at + len(block) < self._segment_bytes:
                    block, block_at = os.pread(file.fileno(), BLOCK_BYTES, at), at
                inside = at - block_at
                magic, size = disk.BLANK_HEADER.unpack_from(
                    block[inside : inside + 8].ljust(8, b"\0")
                )
                if magic in (disk.BLANK, 0):
                    self._check_end(file.fileno(), path, at, size if magic else 0, is_last=is_last)
                    return
                entry = self._checked(block[inside : inside + max(0, size)], path, at, start)
                if entry is None:
                    return
                yield entry
                at += entry.header.size

    def _checked(self, record: bytes, path: Path, at: int, start: int) -> ArchivedEntry | None:
        """Return an entry; None if the rest of the segment cannot be read because of it."""
        index = self._next_index if self._next_index is not None else -1
        try:
            header = disk.check_entry(record, 0, len(record), self._chain_crc)
        except DamagedRecordError as error:
            self._found.add(
                "damaged", index, f"{path.name}, byte {at}: {error}; the rest was not read"
            )
            self._chain_crc = self._next_index = None
            return None
        if self._next_index is not None and header.index != self._next_index:
            self._found.add("wrong_place", index, f"entry {header.index} is where {index} belongs")
        if header.pos != start + at:
            self._found.add("wrong_place", header.index, f"pos {header.pos}, not {start + at}")
        body = record[disk.ENTRY_HEADER_SIZE :]
        if not _is_covered(header, body, self._chain_crc):
            self._found.add("damaged", header.index, "no checksum covers the entry")
        self._chain_crc, self._next_index = header.chain_crc, header.index + 1
        return ArchivedEntry(header, body)

    def _check_end(self, fd: int, path: Path, at: int, blank: int, *, is_last: bool) -> None:
        """Check what follows the last record of a segment."""
        expected = 0 if is_last else self._segment_bytes - at
        if blank != expected:
            self._found.add("wrong_place", -1, f"{path.name}: the end at byte {at} is wrong")
        at += disk.BLANK_SIZE_MIN if blank else 0
        while at < self._segment_bytes:
            try:  # the files are sparse
                at = os.lseek(fd, at, os.SEEK_DATA)
            except OSError:
                return
            raw = os.pread(fd, 1 << 20, at)
            if raw.count(0) != len(raw):
                self._found.add("wrong_place", -1, f"{path.name}: bytes after its last record")
                return
            at += len(raw)


class _Units:
    """The index files, read block by block."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._block = b""
        self._start = 0

    def read(self, index: int) -> bytes:
        """Return the unit of an entry, or fewer bytes if the file does not have it."""
        at = index * disk.INDEX_UNIT_SIZE
        if not self._start <= at < self._start + len(self._block):
            self._block, self._start = self._load(at), at
        inside = at - self._start
        return self._block[inside : inside + disk.INDEX_UNIT_SIZE]

    def _load(self, at: int) -> bytes:
        inside = at % self._file_bytes
        path = self._folder / disk.file_name(at - inside)
        try:
            with path.open("rb") as file:
                return os.pread(file.fileno(), 1 << 20, inside)
        except OSError:
            return b""


def _is_covered(header: EntryHeader, body: bytes, previous_chain_crc: int | None) -> bool:
    """Return whether checksums cover an entry. A checksum that is 0 when computed does cover."""
    has_chain_crc = header.chain_crc or (
        previous_chain_crc is not None and not disk.chain_crc_of(header, previous_chain_crc)
    )
    return bool(has_chain_crc) and bool(header.body_crc or not disk.body_crc(body))


def _unit_of(header: EntryHeader) -> bytes:
    return disk.INDEX_UNIT.pack(header.magic, header.pos, header.size, header.index, header.term)
