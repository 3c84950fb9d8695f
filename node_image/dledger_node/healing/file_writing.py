"""Write the bytes that mend a data file, durably, and read them back."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

from dledger_formats.log import disk
from dledger_node.errors import StoreError
from dledger_node.healing import kept_times
from dledger_node.healing.peer_bytes import CHUNK_BYTES, PeerBytes, Piece
from dledger_node.store.segments.segment import sync_folder
from dledger_node.store.segments.segment_list import SPARE_SUFFIX

Guard: TypeAlias = Callable[[], AbstractContextManager[bool]]
"""Held while bytes are written; yields whether the log is still that of the damaged ranges."""


class FileWriter:
    """Writes pieces of one log's data files, which may be open and written to at the log's end."""

    def __init__(
        self, folder: Path, segment_size_bytes: int, *, create_files: bool, guard: Guard
    ) -> None:
        """`folder` is the store's; `Mender` says what the others mean."""
        self._folder = folder / disk.DATA_FOLDER
        self._segment_size_bytes = segment_size_bytes
        self._create_files = create_files
        self._guard = guard

    def write(self, start: int, pieces: Sequence[Piece], fetched: PeerBytes) -> None:
        """Write pieces of the file that begins at position `start` durably, and read them back.

        A missing file is written under another name, which the next start removes after a crash.
        Raises OSError, NoPeerError.
        """
        path = self._folder / disk.file_name(start)
        is_missing = not path.exists()
        if is_missing and not self._create_files:
            raise FileNotFoundError(f"{path} is missing")
        unfinished = self._folder.parent / f"{self._folder.name}-mended{SPARE_SUFFIX}"
        at = unfinished if is_missing else path
        written_ns = kept_times.written_ns(path)
        fd = os.open(at, os.O_RDWR | (os.O_CREAT | os.O_TRUNC if is_missing else 0), 0o640)
        try:
            if os.fstat(fd).st_size < self._segment_size_bytes:
                os.posix_fallocate(fd, 0, self._segment_size_bytes)
            for pos, chunk in _chunks(pieces, fetched):
                with self._guard() as is_same_log:
                    if not is_same_log:
                        raise OSError("the log has changed meanwhile")
                    _write_all(fd, chunk, pos - start)
            kept_times.restore(fd, written_ns)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            for pos, chunk in _chunks(pieces, fetched):
                if os.pread(fd, len(chunk), pos - start) != chunk:
                    raise OSError(f"{path}: the disk does not keep what is written to it")
        finally:
            os.close(fd)
        if is_missing:
            os.rename(at, path)
            try:
                sync_folder(self._folder)
            except StoreError as error:
                raise OSError(str(error)) from error


def _chunks(pieces: Sequence[Piece], fetched: PeerBytes) -> Iterator[tuple[int, bytes]]:
    """Yield the position and the bytes of each part of the pieces."""
    for piece in pieces:
        for pos in range(piece.start, piece.end, CHUNK_BYTES):
            yield pos, fetched.read(pos, min(piece.end, pos + CHUNK_BYTES))


def _write_all(fd: int, data: bytes, at: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(fd, memoryview(data)[done:], at + done)
