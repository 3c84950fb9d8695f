"""Read a member's folder: the files of a stopped member, of a copy of its volume, or an archive.

The folder is only read. Its manifest ends at the committed index in its `checkpoint`, since later
entries may not be committed.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias

from dledger_formats.http.status import (
    FlushDiskType,
    Manifest,
    NodeStatus,
    Role,
    SegmentFile,
    foreign_names,
)
from dledger_formats.log import disk, properties
from pyspark_dledger.files import AnswerError, DiskError, GoneError

UNKNOWN_TERM: Final = (1 << 63) - 1
"""The term of a folder without `currterm`: no entry is above it."""
_Segment: TypeAlias = tuple[Path, int]
"""A file that is named like a segment, and its size in bytes."""


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """The files of a folder; implements `files.Files`."""

    folder: Path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Do nothing: each read opens and closes its file."""

    def manifest(self) -> Manifest:
        """Return the folder's manifest. Raises ReadError if it cannot be read."""
        return manifest_of(self.folder)

    def status(self) -> NodeStatus:
        """Return the status in the folder's manifest. Raises ReadError as `manifest` does."""
        return self.manifest().status

    def read(self, folder: str, name: str, start: int, end: int) -> bytes:
        """Return the bytes [start, end) of a file, or fewer if the file ends before `end`."""
        path = self.folder / folder / name
        try:
            with path.open("rb") as file:
                return os.pread(file.fileno(), end - start, start)
        except FileNotFoundError as error:
            raise GoneError(f"{path}: no such file") from error
        except OSError as error:
            raise DiskError(f"{path}: {error}") from error


def manifest_of(folder: Path) -> Manifest:
    """Describe a member's folder.

    Raises AnswerError if it has no sound `checkpoint`, or if nothing shows where its log begins.
    """
    checkpoint, group = _properties(folder, "checkpoint"), _properties(folder, "group")
    try:
        committed_index = int(checkpoint["committedIndex"])
    except (KeyError, ValueError) as error:
        raise AnswerError(
            f"{folder} has no sound checkpoint, so nothing shows which of its entries are "
            "committed; read the running member instead"
        ) from error
    data_segments, foreign_data = _listed(folder / disk.DATA_FOLDER)
    index_segments, foreign_index = _listed(folder / disk.INDEX_FOLDER)
    data = list(_data_files(data_segments))
    term = _properties(folder, "currterm").get("currTerm", "")
    status = NodeStatus(
        group=group.get("group", ""),
        group_identity=group.get("identity", ""),
        self_id=folder.name.removeprefix("dledger-"),
        role=Role.FOLLOWER,
        term=int(term) if term.isdecimal() else UNKNOWN_TERM,
        leader_id=None,
        master=False,
        ready=False,
        reason="the member's folder is read, not the member",
        broker_id=-1,
        ledger_begin_index=_begin_index(folder, data, checkpoint.get("beginIndex", "")),
        ledger_end_index=committed_index,
        ledger_end_term=-1,
        committed_index=committed_index,
        durable_index=committed_index,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        peers={},
        version="",
    )
    index = list(_index_files(index_segments))
    foreign = foreign_names(foreign_data + foreign_index)
    return Manifest(status=status, data=data, index=index, foreign=foreign)


def _begin_index(folder: Path, data: Sequence[SegmentFile], recorded: str) -> int:
    """Return the index of the log's first entry. `recorded` is what the checkpoint says; that of
    Java does not say it. Raises AnswerError if neither shows it.

    If the first file has lost its first entry, the log does not begin with the next file.
    """
    begins = [file.first_index for file in data if file.first_index >= 0]
    if not data or data[0].first_index >= 0:
        return min(begins, default=0)
    if recorded.isdecimal():
        return int(recorded)
    if not begins or disk.start_offset(data[0].name) == 0:
        return 0
    raise AnswerError(
        f"the first entry of {folder / disk.DATA_FOLDER / data[0].name} is damaged, and the "
        "checkpoint does not say where the log begins; read the running member instead"
    )


def _properties(folder: Path, name: str) -> dict[str, str]:
    """Return the values of a small file; none if it is missing or damaged."""
    try:
        return properties.parse((folder / name).read_bytes())
    except (OSError, ValueError):
        return {}


def _data_files(segments: Sequence[_Segment]) -> Iterator[SegmentFile]:
    for path, size in segments:
        try:
            first_index = _first_index(path, size)
        except OSError:
            first_index = -1
        yield _file(path, size, first_index)


def _index_files(segments: Sequence[_Segment]) -> Iterator[SegmentFile]:
    for path, size in segments:
        yield _file(path, size, disk.start_offset(path.name) // disk.INDEX_UNIT_SIZE)


def _file(path: Path, size: int, first_index: int) -> SegmentFile:
    return SegmentFile(
        name=path.name, size_bytes=size, readable_bytes=size, first_index=first_index
    )


def _listed(folder: Path) -> tuple[list[_Segment], list[str]]:
    """Return the segments of a folder, in order, and the names of everything else in it.

    Whole segments have one size, and begin at a multiple of it.
    """
    starts, sizes = dict[Path, int](), dict[Path, int]()
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    for path in paths:
        with contextlib.suppress(ValueError):
            starts[path] = disk.start_offset(path.name)
            sizes[path] = path.stat().st_size
    size = whole_length(sizes.values())
    segments = [(path, sizes[path]) for path, at in starts.items() if not size or at % size == 0]
    found = {path for path, _ in segments}
    return segments, [f"{folder.name}/{path.name}" for path in paths if path not in found]


def whole_length(lengths: Iterable[int]) -> int:
    """Return the length that most files have, or the greatest of those; 0 if all are empty.

    A file that was cut short is shorter than a whole one.
    """
    counts = Counter(length for length in lengths if length)
    return max(counts, key=lambda length: (counts[length], length), default=0)


def _first_index(path: Path, size: int) -> int:
    """Return the index of a file's first entry; -1 if there is none, or if it is damaged.

    A file without a known first entry is not read; its entries are read from another copy.
    """
    with path.open("rb") as file:
        raw = os.pread(file.fileno(), disk.ENTRY_HEADER_SIZE, 0)
        if len(raw) == disk.ENTRY_HEADER_SIZE:
            magic, blank = disk.BLANK_HEADER.unpack_from(raw)
            if magic == disk.BLANK and disk.BLANK_SIZE_MIN <= blank < size:
                raw = os.pread(file.fileno(), disk.ENTRY_HEADER_SIZE, blank)
    if len(raw) < disk.ENTRY_HEADER_SIZE:
        return -1
    header = disk.unpack_header(raw, 0)
    is_sound = (
        header.magic in disk.ENTRY_MAGICS
        and header.size == disk.ENTRY_HEADER_SIZE + header.body_size
        and header.index >= 0
    )
    return header.index if is_sound else -1
