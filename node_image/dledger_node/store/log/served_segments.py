"""The segments that an auditor may read, each up to its last committed entry."""

import itertools
import os
from pathlib import Path
from typing import Literal

from dledger_formats.http.status import SegmentFile
from dledger_formats.log import disk
from dledger_formats.log.disk import INDEX_UNIT_SIZE
from dledger_node.store.log.files import LogFiles
from dledger_node.store.log.retention import SealedSegment
from dledger_node.store.log.writer import LogWriter
from dledger_node.store.segments.segment import Segment


class ServedSegments:
    """Lists and reads the segments of one log."""

    def __init__(self, folder: Path, files: LogFiles, log: LogWriter) -> None:
        self._folder = folder
        self._files = files
        self._log = log

    def data(self, limit_index: int) -> list[SegmentFile]:
        """List the data files, readable up to entry limit_index (the committed index)."""
        files, begin_index = self._files, self._log.begin_index
        limit_index = min(limit_index, self._log.end_index)
        end_pos = files.end_pos(limit_index) if limit_index >= begin_index else 0
        return [
            _segment_file(file, end_pos, files.first_in(file, begin_index, limit_index))
            for file in files.data.files
        ]

    def index(self, limit_index: int) -> list[SegmentFile]:
        """List the index files, readable up to the unit of limit_index."""
        begin_index = self._log.begin_index
        limit_index = min(limit_index, self._log.end_index)
        end_pos = (limit_index + 1) * INDEX_UNIT_SIZE if limit_index >= begin_index else 0
        return [
            _segment_file(file, end_pos, max(file.start // INDEX_UNIT_SIZE, begin_index))
            for file in self._files.index.files
        ]

    def read(self, folder: Literal["data", "index"], name: str, start: int, end: int) -> bytes:
        """Read bytes of a segment by its name; blocks; any thread may call.

        Raises FileNotFoundError if no such segment exists, or if it has been removed.
        """
        try:
            disk.start_offset(name)
        except ValueError as error:
            raise FileNotFoundError(str(error)) from None
        fd = os.open(self._folder / folder / name, os.O_RDONLY)
        try:
            return os.pread(fd, end - start, start)
        finally:
            os.close(fd)


def sealed_segments(files: LogFiles, begin_index: int, end_index: int) -> list[SealedSegment]:
    """Return all data segments except the last, oldest first; empty for an empty log."""
    if end_index < begin_index:
        return []
    segments = files.data.files_between(files.data.start, files.end_pos(end_index))
    return [
        SealedSegment(
            last_index=files.first_in(following, begin_index, end_index) - 1,
            size_bytes=file.size,
            modified_s=file.path.stat().st_mtime,
        )
        for file, following in itertools.pairwise(segments)
    ]


def _segment_file(file: Segment, end_pos: int, first_index: int) -> SegmentFile:
    readable_bytes = max(0, min(end_pos - file.start, file.size))
    return SegmentFile(
        name=file.path.name,
        size_bytes=file.size,
        readable_bytes=readable_bytes,
        first_index=first_index if readable_bytes else -1,
    )
