"""Read a member's folder: the files of a stopped member, of a copy of its volume, or an archive.

The folder is only read. Its manifest ends at the committed index that its `checkpoint` tells, since
later entries may not be the group's.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

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
        """Close nothing: each read opens its file."""

    def manifest(self) -> Manifest:
        """Return the folder's manifest. Raises ReadError if it cannot be read."""
        return manifest_of(self.folder)

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
    """Describe a member's folder. Raises AnswerError if it has no sound `checkpoint`."""
    checkpoint, group = _properties(folder, "checkpoint"), _properties(folder, "group")
    try:
        committed_index = int(checkpoint["committedIndex"])
    except (KeyError, ValueError) as error:
        raise AnswerError(
            f"{folder} has no sound checkpoint, so nothing tells which of its entries are "
            "committed; read the running member instead"
        ) from error
    data = list(_files(folder / disk.DATA_FOLDER))
    begins = [file.first_index for file in data if file.first_index >= 0]
    begin_index, term = min(begins, default=0), _properties(folder, "currterm").get("currTerm", "")
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
        ledger_begin_index=begin_index,
        ledger_end_index=committed_index,
        ledger_end_term=-1,
        committed_index=committed_index,
        durable_index=committed_index,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        peers={},
        version="",
    )
    index = list(_index_files(folder))
    return Manifest(status=status, data=data, index=index, foreign=_foreign(folder))


def _properties(folder: Path, name: str) -> dict[str, str]:
    """Return the values of a small file; none if it is missing or damaged."""
    try:
        return properties.parse((folder / name).read_bytes())
    except (OSError, ValueError):
        return {}


def _files(folder: Path) -> Iterator[SegmentFile]:
    for path, size in _sized(folder):
        try:
            first_index = _first_index(path, size)
        except OSError:
            first_index = -1
        yield SegmentFile(
            name=path.name, size_bytes=size, readable_bytes=size, first_index=first_index
        )


def _index_files(folder: Path) -> Iterator[SegmentFile]:
    for path, size in _sized(folder / disk.INDEX_FOLDER):
        first_index = disk.start_offset(path.name) // disk.INDEX_UNIT_SIZE
        yield SegmentFile(
            name=path.name, size_bytes=size, readable_bytes=size, first_index=first_index
        )


def _foreign(folder: Path) -> list[str]:
    """Name what is no segment in the folders of segments."""
    kinds = [folder / kind for kind in (disk.DATA_FOLDER, disk.INDEX_FOLDER)]
    return foreign_names(
        f"{kind.name}/{path.name}"
        for kind in kinds
        for path in _paths(kind) - {segment for segment, _ in _sized(kind)}
    )


def _sized(folder: Path) -> list[tuple[Path, int]]:
    """Return the segments of a folder, in order, and their sizes in bytes. All that are whole have
    one size, and begin at a multiple of it.
    """
    sizes = {path: path.stat().st_size for path in sorted(_paths(folder)) if _is_named(path)}
    whole = Counter(sizes.values()).most_common(1)
    return [
        (path, size)
        for path, size in sizes.items()
        if not whole[0][0] or disk.start_offset(path.name) % whole[0][0] == 0
    ]


def _paths(folder: Path) -> set[Path]:
    return set(folder.iterdir()) if folder.is_dir() else set()


def _is_named(path: Path) -> bool:
    """Tell whether a file is named like a segment."""
    try:
        disk.start_offset(path.name)
    except ValueError:
        return False
    return True


def _first_index(path: Path, size: int) -> int:
    """Return the index of a file's first entry; -1 if there is none, or if it is damaged.

    A file without a known first entry is not read. Its entries are then taken from elsewhere.
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
