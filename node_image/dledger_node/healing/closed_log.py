"""The log of a member that is out of service, as peers and auditors may read it."""

import contextlib
import hashlib
import os
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Self

from dledger_formats.http.status import SegmentFile
from dledger_formats.log import disk
from dledger_formats.log.disk import INDEX_UNIT_SIZE, IndexUnit
from dledger_formats.settings import NodeSettings
from dledger_node.config import store_folder
from dledger_node.http.outage import NO_LISTING, Listing
from dledger_node.http.pages import Folder
from dledger_node.store.log.damaged_ranges import LogShape
from dledger_node.store.log.served_segments import read_for_auditor, stored_bytes
from dledger_node.store.small_files.checkpoint import Checkpoint, load_checkpoint
from dledger_node.store.small_files.hard_state import load_hard_state
from dledger_node.store.small_files.served_files import open_served

_NO_UNIT: Final = disk.unpack_index_unit(bytes(INDEX_UNIT_SIZE), 0)


def shape_of(settings: NodeSettings) -> LogShape:
    """Return where a member's log is, and how large its files are."""
    return LogShape(
        folder=store_folder(settings),
        segment_size_bytes=settings.segment_size_bytes,
        index_segment_size_bytes=settings.index_segment_size_bytes,
    )


class ClosedLog:
    """Reads the files of a store that need not be open, up to its checkpoint's committed index.

    So two damaged members can mend from each other, even if both are out of service.
    """

    def __init__(self, shape: LogShape) -> None:
        self._shape = shape
        self._listed: tuple[object, Listing] = (None, NO_LISTING)
        """The values that the last listing was made of, and that listing."""

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        """Return committed bytes of a data file, sound or not; blocks.

        See `stored_bytes` for `known`: without the index, nothing else says what is committed.
        Raises LookupError if there are none, OSError if they cannot be read.
        """
        end_pos = 0
        with contextlib.suppress(OSError):
            end_pos = self._end_pos(load_checkpoint(self._shape.folder))
        return stored_bytes(self._shape.folder / disk.DATA_FOLDER, name, at, size, end_pos, known)

    def listing(self) -> Listing:
        """List the files for auditors, readable up to the committed index; blocks.

        Nothing is listed if the term, the committed index or its position is not known: what may be
        read would then be a guess. Raises OSError, StoreError.
        """
        folder = self._shape.folder
        made_of = (
            load_hard_state(folder).term,
            load_checkpoint(folder),
            _files(folder / disk.DATA_FOLDER),
            _files(folder / disk.INDEX_FOLDER),
        )
        if made_of != self._listed[0]:
            self._listed = made_of, self._list(*made_of)
        return self._listed[1]

    def readable_bytes(self, folder: Folder, name: str) -> int | None:
        """Return how much of one file is readable, as `listing` says; None if it is not listed.

        No other file is looked at; blocks. Raises OSError, StoreError.
        """
        load_hard_state(self._shape.folder)  # without a term, nothing is listed
        checkpoint = load_checkpoint(self._shape.folder)
        end_pos = self._end_pos(checkpoint)
        if checkpoint is None or checkpoint.begin_index is None or not end_pos:
            return None
        if folder == disk.INDEX_FOLDER:
            end_pos = (checkpoint.committed_index + 1) * INDEX_UNIT_SIZE
        try:
            size_bytes = (self._shape.folder / folder / name).stat().st_size
        except FileNotFoundError:
            return None
        return _readable_bytes(disk.start_offset(name), size_bytes, end_pos)

    def _list(
        self,
        term: int,
        checkpoint: Checkpoint | None,
        data: Sequence["_File"],
        index: Sequence["_File"],
    ) -> Listing:
        end_pos = self._end_pos(checkpoint)
        if checkpoint is None or checkpoint.begin_index is None or not end_pos:
            return NO_LISTING
        begin_index, committed_index = checkpoint.begin_index, checkpoint.committed_index
        index_end = (committed_index + 1) * INDEX_UNIT_SIZE
        with _Units(self._shape) as units:
            listed = [
                _served(file, end_pos, units.first_at(file, begin_index, committed_index))
                for file in data
            ]
        return Listing(
            term=term,
            begin_index=begin_index,
            committed_index=committed_index,
            data=listed,
            index=[
                _served(file, index_end, max(file.start // INDEX_UNIT_SIZE, begin_index))
                for file in index
            ],
            life=hashlib.sha256(repr((term, checkpoint, data, index)).encode()).hexdigest(),
        )

    def read_file(self, folder: Folder, name: str, start: int, end: int) -> bytes:
        """Read bytes of a file of the listing; blocks. Raises OSError, StoreDamagedError."""
        return read_for_auditor(self._shape.folder / folder, name, start, end)

    def open_file(self, name: str) -> BinaryIO:
        """Open a small file or a file of a snapshot; blocks. Raises OSError."""
        return open_served(self._shape.folder, name)

    def _end_pos(self, checkpoint: Checkpoint | None) -> int:
        """Return where the last committed entry ends, by its index unit; 0 if that is unknown."""
        index = checkpoint.committed_index if checkpoint is not None else -1
        if index < 0:
            return 0
        with _Units(self._shape) as units:
            unit = units.read(index)
        return unit.pos + unit.size if unit.index == index else 0


@dataclass(frozen=True, slots=True)
class _File:
    """A data or index file as it is on the disk now."""

    name: str
    start: int
    size_bytes: int
    modified_ns: int


def _files(folder: Path) -> Sequence[_File]:
    """Return the files of a folder that are named like segments, in their order."""
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        with contextlib.suppress(ValueError, FileNotFoundError):
            start, seen = disk.start_offset(path.name), path.stat()
            found.append(_File(path.name, start, seen.st_size, seen.st_mtime_ns))
    return found


def _readable_bytes(start: int, size_bytes: int, end_pos: int) -> int:
    return max(0, min(end_pos - start, size_bytes))


def _served(file: _File, end_pos: int, first_index: int) -> SegmentFile:
    readable_bytes = _readable_bytes(file.start, file.size_bytes, end_pos)
    return SegmentFile(
        name=file.name,
        size_bytes=file.size_bytes,
        readable_bytes=readable_bytes,
        first_index=first_index if readable_bytes else -1,
        modified_ms=file.modified_ns // 1_000_000,
    )


class _Units:
    """The index units of the log; each file is opened once."""

    def __init__(self, shape: LogShape) -> None:
        self._folder = shape.folder / disk.INDEX_FOLDER
        self._file_size = shape.index_segment_size_bytes
        self._opened: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._opened.values():
            os.close(descriptor)

    def read(self, index: int) -> IndexUnit:
        """Return the unit of an entry as it is on the disk. Raises OSError."""
        at = index * INDEX_UNIT_SIZE
        start = at - at % self._file_size
        if start not in self._opened:
            self._opened[start] = os.open(self._folder / disk.file_name(start), os.O_RDONLY)
        raw = os.pread(self._opened[start], INDEX_UNIT_SIZE, at - start)
        return disk.unpack_index_unit(raw.ljust(INDEX_UNIT_SIZE, b"\0"), 0)

    def first_at(self, file: _File, begin_index: int, last_index: int) -> int:
        """Return the index of the first entry in a data file; -1 if the index does not say."""
        indexes = range(begin_index, last_index + 1)
        try:
            found = begin_index + bisect_left(indexes, file.start, key=lambda at: self.read(at).pos)
            unit = self.read(found) if found <= last_index else _NO_UNIT
        except OSError:
            return -1
        is_in_file = file.start <= unit.pos < file.start + file.size_bytes
        return found if unit.index == found and is_in_file else -1
