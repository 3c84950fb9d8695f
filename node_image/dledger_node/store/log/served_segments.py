"""The segments that an auditor may read, each up to its last committed entry."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from dledger_formats.http.status import SegmentFile, foreign_names
from dledger_formats.log import disk
from dledger_formats.log.disk import ENTRY_HEADER_SIZE, INDEX_UNIT_SIZE
from dledger_node import passing_reads
from dledger_node.errors import CutShortError, Damage, NotYetCommittedError, StoreDamagedError
from dledger_node.store.log.damaged_ranges import named_starts
from dledger_node.store.log.files import LogFiles
from dledger_node.store.log.retention import SealedSegment
from dledger_node.store.log.writer import LogWriter
from dledger_node.store.segments.segment import Segment, SegmentClosedError


class ServedSegments:
    """Lists and reads the segments of one log."""

    def __init__(self, folder: Path, files: LogFiles, writer: LogWriter) -> None:
        self._folder = folder
        self._files = files
        self._writer = writer

    def data(self, limit_index: int) -> list[SegmentFile]:
        """List the data files, readable up to entry limit_index (the committed index).

        Raises LookupError if a segment is removed or closed meanwhile, and StoreDamagedError if the
        index cannot be read or does not say where they begin.
        """
        files, begin_index = self._files, self._writer.begin_index
        limit_index = min(limit_index, self._writer.end_index)
        with _closed_is_missing(), _index_is_damaged(begin_index):
            end_pos = self._end_pos("data", limit_index)
            return [
                _segment_file(
                    file,
                    end_pos,
                    files.first_in(file, begin_index, limit_index),
                    _modified_ms(file),
                )
                for file in files.data.files
            ]

    def index(self, limit_index: int) -> list[SegmentFile]:
        """List the index files, readable up to the unit of limit_index."""
        begin_index = self._writer.begin_index
        limit_index = min(limit_index, self._writer.end_index)
        end_pos = self._end_pos("index", limit_index)
        return [
            _segment_file(file, end_pos, max(file.start // INDEX_UNIT_SIZE, begin_index))
            for file in self._files.index.files
        ]

    def foreign(self) -> list[str]:
        """Return the names of files in the segments' folders that are not segments; blocks.

        The log works despite them, but neither the next start nor Java accepts such a folder.
        Returns no names if a folder cannot be listed: reads of its files report that.
        """
        files = self._files
        kinds = (disk.DATA_FOLDER, files.data), (disk.INDEX_FOLDER, files.index)
        with contextlib.suppress(OSError):
            return foreign_names(
                f"{kind}/{name}" for kind, list_ in kinds for name in list_.foreign()
            )
        return []

    def readable_bytes(
        self, folder: Literal["data", "index"], name: str, limit_index: int
    ) -> int | None:
        """Return how much of one file is readable, as its list says; None if it is not listed.

        No other file is looked at. Raises LookupError as `data` does.
        """
        start = disk.start_offset(name)
        files = (self._files.data if folder == "data" else self._files.index).files
        file = next((file for file in files if file.start == start), None)
        if file is None:
            return None
        with _closed_is_missing(), _index_is_damaged(self._writer.begin_index):
            end_pos = self._end_pos(folder, min(limit_index, self._writer.end_index))
        return _readable_bytes(file, end_pos)

    def _end_pos(self, folder: Literal["data", "index"], limit_index: int) -> int:
        """Return where an entry, or its unit, ends; 0 before the first entry."""
        if limit_index < self._writer.begin_index:
            return 0
        if folder == "index":
            return (limit_index + 1) * INDEX_UNIT_SIZE
        return self._files.end_pos(limit_index)

    def read(self, folder: Literal["data", "index"], name: str, start: int, end: int) -> bytes:
        """Read bytes of a segment by its name for an auditor; blocks; any thread may call.

        The read leaves the page cache as it was. Raises FileNotFoundError if no such segment
        exists, or if it has been removed. If it was cut short, raises CutShortError with the entry
        at the cut; for an index file, with the first entry of the file.
        """
        try:
            return read_for_auditor(self._folder / folder, name, start, end)
        except CutShortError as error:
            at = disk.start_offset(name)
            if folder == "index":
                error.damage = Damage.WRONG_INDEX
                error.index = max(at // INDEX_UNIT_SIZE, self._writer.begin_index)
            else:
                error.index = self._last_index(at + error.size)
            raise

    @property
    def data_bytes(self) -> int:
        """Size of all data files."""
        return self._files.data.end - self._files.data.start

    def short_file(self) -> StoreDamagedError | None:
        """Look for a data file that is missing or was cut short; blocks."""
        for file in tuple(self._files.data.files):
            try:
                size = file.path.stat().st_size
            except FileNotFoundError:
                if file.removed or file.start < self._files.data.start:
                    continue
                return StoreDamagedError(
                    f"{file.path} is missing", Damage.MISSING_SEGMENT, self._first_index(file.start)
                )
            if size < file.size:
                error = CutShortError(
                    f"{file.path} was cut short: it has {size} bytes of {file.size}", size
                )
                error.index = self._last_index(file.start + size)
                return error
        return None

    def _first_index(self, pos: int) -> int | None:
        with contextlib.suppress(StoreDamagedError, IndexError, SegmentClosedError):
            return self._files.first_from(pos, self._writer.begin_index, self._writer.end_index)
        return None

    def _last_index(self, pos: int) -> int | None:
        """Return the last entry that begins before `pos`; None if the index does not say.

        If a file was cut short at `pos`, this entry or the next one is damaged. The first entry of
        the file may be far from there, where the mender would find everything sound.
        """
        following = self._first_index(pos)
        return None if following is None else max(following - 1, self._writer.begin_index)

    def stored(self, name: str, at: int, size: int, limit_index: int, known: bytes = b"") -> bytes:
        """Read bytes of a data file up to entry limit_index; blocks; any thread may call.

        See `stored_bytes` for `known`. Raises LookupError if the file has no such committed bytes,
        StoreError, OSError.
        """
        limit_index = min(limit_index, self._writer.end_index)
        end_pos = 0
        if limit_index >= self._writer.begin_index:
            with _closed_is_missing(), _index_is_damaged(self._writer.begin_index):
                end_pos = self._files.end_pos(limit_index)
        return stored_bytes(self._folder / disk.DATA_FOLDER, name, at, size, end_pos, known)


@contextlib.contextmanager
def _closed_is_missing() -> Iterator[None]:
    """Raise LookupError if a segment is used that another thread has closed."""
    try:
        yield
    except SegmentClosedError as error:
        raise LookupError(str(error)) from error


@contextlib.contextmanager
def _index_is_damaged(begin_index: int) -> Iterator[None]:
    """Mark damage that is found while only the index is read as WRONG_INDEX, with a place.

    Otherwise the data files would be searched for it.
    """
    try:
        yield
    except StoreDamagedError as error:
        error.damage = Damage.WRONG_INDEX
        error.index = begin_index if error.index is None else error.index
        raise


def read_for_auditor(folder: Path, name: str, start: int, end: int) -> bytes:
    """Read bytes of a data or index file, which need not be open. See `ServedSegments.read`."""
    try:
        disk.start_offset(name)
    except ValueError as error:
        raise FileNotFoundError(str(error)) from None
    fd = os.open(folder / name, os.O_RDONLY)
    try:
        data = passing_reads.read(fd, start, end - start)
        size = start + len(data)
        if size < end:
            size = min(size, os.fstat(fd).st_size)  # it may end long before the start
            raise CutShortError(f"{folder / name} was cut short: it ends at byte {size}", size)
        return data
    finally:
        os.close(fd)


def stored_bytes(
    folder: Path, name: str, at: int, size: int, end_pos: int, known: bytes = b""
) -> bytes:
    """Read bytes of a data file, all of them before end_pos, or before an entry of `known`.

    `known` are headers of entries that the asking member knows to be committed. A log that has an
    entry of the same index and term has the same entries before it (Raft, section 5.3: the Log
    Matching Property), so they are committed, too, even where no leader has said so yet.

    Raises NotYetCommittedError, LookupError, OSError.
    """
    end = disk.start_offset(name) + at + size
    if end > end_pos and end > (end_pos := max(end_pos, _last_shared(folder, known))):
        raise NotYetCommittedError(f"committed entries end at position {end_pos}")
    try:
        fd = os.open(folder / name, os.O_RDONLY)
    except FileNotFoundError:
        raise LookupError(f"there is no data file {name}") from None
    try:
        data = os.pread(fd, size, at)
    finally:
        os.close(fd)
    if len(data) < size:
        raise LookupError(f"{name} ends at byte {at + len(data)}")
    return data


def _last_shared(folder: Path, headers: bytes) -> int:
    """Return the position of the last entry with one of these headers; 0 if the log has none."""
    starts, found = named_starts(folder), 0
    for at in range(0, len(headers), ENTRY_HEADER_SIZE):
        header, pos = headers[at : at + ENTRY_HEADER_SIZE], disk.unpack_header(headers, at).pos
        start = max((one for one in starts if one <= pos), default=None)
        if start is None or pos <= found:
            continue
        path = folder / disk.file_name(start)
        with path.open("rb") as file:
            if pos - start < os.fstat(file.fileno()).st_size:
                file.seek(pos - start)
                found = pos if file.read(ENTRY_HEADER_SIZE) == header else found
    return found


def sealed_segments(files: LogFiles, begin_index: int, end_index: int) -> list[SealedSegment]:
    """Return all data segments except the last, oldest first; empty for an empty log.

    Raises StoreDamagedError if the index cannot be read or does not say where they begin.
    """
    if end_index < begin_index:
        return []
    with _index_is_damaged(begin_index):
        segments = files.data.files_between(files.data.start, files.end_pos(end_index))
        return [
            SealedSegment(
                last_index=files.first_in(following, begin_index, end_index) - 1,
                size_bytes=file.size,
                modified_s=file.path.stat().st_mtime,
            )
            for file, following in itertools.pairwise(segments)
        ]


def _modified_ms(file: Segment) -> int:
    """Return the time of a file's last write; -1 if it is missing, which a read will report."""
    try:
        return int(file.path.stat().st_mtime * 1000)
    except OSError:
        return -1


def _readable_bytes(file: Segment, end_pos: int) -> int:
    return max(0, min(end_pos - file.start, file.size))


def _segment_file(
    file: Segment, end_pos: int, first_index: int, modified_ms: int = -1
) -> SegmentFile:
    readable_bytes = _readable_bytes(file, end_pos)
    return SegmentFile(
        name=file.path.name,
        size_bytes=file.size,
        readable_bytes=readable_bytes,
        first_index=first_index if readable_bytes else -1,
        modified_ms=modified_ms,
    )
