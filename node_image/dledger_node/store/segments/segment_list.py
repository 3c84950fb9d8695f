"""The segments of one kind, data or index, as one address space.

The folder holds whole segments only, since Java refuses anything else there. A new segment is
created beside the folder under another name, as a durable file of zeros, and renamed into the
folder when it is needed.

Every byte after the end of the log is zero, except during `truncate` and after a crash. Java reads
a zero as the end of the log, and an old record cannot reappear after a newer one.
"""

import contextlib
import itertools
import os
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from dledger_formats.log import disk
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.store.segments.listing import starts_of
from dledger_node.store.segments.open_files import OPEN_FILES_MAX, OpenFiles
from dledger_node.store.segments.segment import NO_ROOM, Segment, disk_error, sync_folder

SPARE_SUFFIX: Final = ".spare"
ROOM_BYTES: Final = 64 << 20
"""Room kept allocated after the end of the log, so that appends need not wait for a new segment."""
_ZEROS: Final = bytes(1 << 20)


class SegmentList:
    """Consecutive segments. The list does not know how far they are written.

    One thread changes it. Others may look up and read segments: `files` only ever grows, and is
    replaced by a new list when segments leave it.
    """

    def __init__(
        self,
        folder: Path,
        file_size: int,
        starts: list[int],
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
        self.folder = folder
        self.file_size = file_size
        self._open_files = OpenFiles(open_files_max)
        self.files = [
            Segment(folder / disk.file_name(start), start, file_size, self._open_files)
            for start in starts
        ]
        self._spares: deque[Segment] = deque()
        self._spare_numbers = itertools.count()

    @classmethod
    def load(
        cls,
        folder: Path,
        file_size: int,
        open_files_max: int = OPEN_FILES_MAX,
        *,
        used_end: int = 0,
    ) -> Self:
        """List the segments of a folder, and remove spare segments that a crash left beside it.

        Raises StoreDamagedError unless the folder holds a sequence of whole segments. For
        `used_end` see `starts_of`.
        """
        for left in folder.parent.glob(f"{folder.name}-*{SPARE_SUFFIX}"):
            left.unlink()
        starts = starts_of(folder, file_size, used_end)
        for start, following in itertools.pairwise(starts):
            if following != start + file_size:
                raise StoreDamagedError(
                    f"{folder}: {disk.file_name(start)} is followed by {disk.file_name(following)},"
                    f" but segments have {file_size} bytes: a file is missing, or the segment size "
                    "was changed",
                    Damage.MISSING_SEGMENT,
                )
        return cls(folder, file_size, starts, open_files_max)

    @property
    def start(self) -> int:
        """Position of the first byte; 0 if there is no segment."""
        files = self.files
        return files[0].start if files else 0

    @property
    def end(self) -> int:
        """Position after the last segment; 0 if there is none."""
        files = self.files
        return files[-1].end if files else 0

    def file_at(self, pos: int) -> Segment:
        """Return the segment that holds a position. Raises IndexError if none does."""
        files = self.files
        number = (pos - files[0].start) // self.file_size if files else -1
        if number < 0:
            raise IndexError(f"no file of {self.folder} holds position {pos}")
        return files[number]

    def foreign(self) -> list[str]:
        """Return the names of files in the folder that `load` would not accept; blocks.

        Segments may join and leave the list meanwhile, so only names found by two checks count.
        """
        return sorted(self._not_listed() & self._not_listed())

    def _not_listed(self) -> set[str]:
        """Return the names of files that are not listed and cannot be segments.

        A segment that is about to join the list is after the last one. One that has just left it is
        before the first one, without a gap, since retention removes the oldest file first.
        """
        end = self.end
        names = set(os.listdir(self.folder))
        files = self.files
        begin, end = self.start, max(end, files[-1].end) if files else sys.maxsize
        others = names - {file.path.name for file in files}
        leaving = begin
        while leaving and disk.file_name(leaving - self.file_size) in others:
            leaving -= self.file_size
        return {name for name in others if not self._is_segment(name, leaving, end)}

    def _is_segment(self, name: str, begin: int, end: int) -> bool:
        """Return whether a file is gone, or may be a segment that begins from `begin` to `end`."""
        try:
            start = disk.start_offset(name)
            size = (self.folder / name).stat().st_size
        except ValueError:
            return False
        except FileNotFoundError:
            return True
        return size == self.file_size and start % size == 0 and begin <= start <= end

    def files_between(self, start: int, end: int) -> tuple[Segment, ...]:
        """Return the segments that hold positions from `start` up to, but not including, `end`.

        Each flush calls this, so it looks at no other segment of a long log.
        """
        files = self.files
        if not files:
            return ()
        begin, size = files[0].start, self.file_size
        first, stop = (start - begin) // size, -((begin - end) // size)
        return tuple(files[max(0, first) : max(0, stop)])

    def read(self, start: int, end: int) -> bytes:
        """Read the bytes from `start` to `end`, across segments; fewer where the segments end.

        Raises IndexError if no segment holds `start`, StoreDamagedError if the disk cannot read
        them.
        """
        file = self.file_at(start)
        if end <= file.end:
            return file.read(start - file.start, end - start)
        parts = []
        for file in self.files_between(start, end):
            at = max(start - file.start, 0)
            parts.append(file.read(at, min(end, file.end) - file.start - at))
        return b"".join(parts)

    def reserve(self, pos: int, end: int) -> None:
        """Make room to write up to `end` in a log that ends at `pos`. Raises StoreFullError."""
        while not self.has_room(pos, end):
            self._make_spare()

    def has_room(self, pos: int, end: int) -> bool:
        """Return whether the segments that exist have room to write up to `end`."""
        if end <= self.end:
            return True  # the usual case
        return self._start_of_next(pos) + len(self._spares) * self.file_size >= end

    def preallocate(self, pos: int) -> None:
        """Create segments for a log that ends at `pos`, ahead of need; blocks.

        Raises StoreFullError.
        """
        while self.room_is_short(pos):
            self._make_spare()

    def room_is_short(self, pos: int) -> bool:
        """Return whether `preallocate` has segments to create for a log that ends at `pos`.

        It does if less than half a segment is left, or less than `ROOM_BYTES` and two segments.
        """
        room_bytes = self._start_of_next(pos) + len(self._spares) * self.file_size - pos
        return room_bytes < max(self.file_size // 2, min(ROOM_BYTES, 2 * self.file_size))

    def write(self, pos: int, data: disk.Buffer) -> None:
        """Copy bytes to `pos`, across segments; the caller has reserved the room."""
        file = self._file_to_write(pos)
        while len(data) > (room_bytes := file.end - pos):
            view = memoryview(data)
            file.write(pos - file.start, view[:room_bytes])
            data, pos = view[room_bytes:], file.end
            file = self._file_to_write(pos)
        file.write(pos - file.start, data)

    def truncate(self, pos: int) -> int:
        """Zero everything from `pos` on and remove the segments after it, durably.

        Returns the number of bytes in use from `pos` to the last non-zero byte. Removes the newest
        segment first, so that a crash halfway leaves a sequence.
        """
        used_end = pos
        while self.files and self.files[-1].start >= pos:
            used_end = max(used_end, _used_end(self.files[-1], 0))
            self._remove_last()
        sync_folder(self.folder)
        if self.files and pos < self.end:
            file = self.files[-1]
            used_end = max(used_end, _used_end(file, pos - file.start))
            _zero(file, pos - file.start, min(used_end, file.end) - file.start)
            file.sync()
        return used_end - pos

    def clear(self) -> None:
        """Remove all segments, durably; the newest first, so that a crash leaves a sequence."""
        while self.files:
            self._remove_last()
        sync_folder(self.folder)

    def take_before(self, pos: int) -> tuple[Segment, ...]:
        """Take the segments that end at or before `pos` out of the list; the last one stays."""
        taken = tuple(file for file in self.files[:-1] if file.end <= pos)
        self.files = self.files[len(taken) :]
        return taken

    def sync(self, files: tuple[Segment, ...]) -> None:
        """Make segments and their names durable; blocks."""
        for file in files:
            file.sync()
        if not all(file.name_is_durable for file in files):
            sync_folder(self.folder)
            for file in files:
                file.name_is_durable = True

    def forget_cache(self, pos: int) -> None:
        """Drop cached pages from `pos` on; blocks for a sync. Raises StoreError."""
        for file in self.files_between(pos, self.end):
            file.forget_cache(max(0, pos - file.start))

    def close(self) -> None:
        """Release all segments and remove the spare ones; `load` removes any that remain."""
        for file in (*self.files, *self._spares):
            file.close()
        with contextlib.suppress(OSError):
            for spare in self._spares:
                spare.path.unlink()

    def _file_to_write(self, pos: int) -> Segment:
        """Return the segment that holds a position, nearly always the last; add it if needed."""
        if pos >= self.end:
            return self._add_file(pos)
        last = self.files[-1]
        return last if pos >= last.start else self.file_at(pos)

    def _start_of_next(self, pos: int) -> int:
        return self.end or pos - pos % self.file_size

    def _remove_last(self) -> None:
        last = self.files[-1]
        self.files = self.files[:-1]
        last.remove()

    def _make_spare(self) -> None:
        name = f"{self.folder.name}-{next(self._spare_numbers)}{SPARE_SUFFIX}"
        path = self.folder.parent / name
        self._spares.append(Segment.create(path, self.file_size, self._open_files))

    def _add_file(self, pos: int) -> Segment:
        start = self._start_of_next(pos)
        file = self._spares.popleft()
        file.move_into_log(self.folder / disk.file_name(start), start)
        self.files.append(file)
        return file


def make_folders(folder: Path) -> None:
    """Create the missing folders of a store, durably. Raises OSError, StoreFullError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (disk.DATA_FOLDER, disk.INDEX_FOLDER):
            (folder / name).mkdir(exist_ok=True)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise disk_error(f"cannot create the folders of {folder}", error) from error
    sync_folder(folder)
    sync_folder(folder.parent)


def _chunks(file: Segment, at: int) -> Iterator[tuple[int, int]]:
    for begin, end in file.data_ranges(at):
        for start in range(begin, end, len(_ZEROS)):
            yield start, min(end, start + len(_ZEROS))


def _used_end(file: Segment, at: int) -> int:
    """Return the position after the last non-zero byte from `at` on, or that of `at` itself."""
    used = at
    for start, end in _chunks(file, at):
        chunk = file.read(start, end - start)
        if chunk != _ZEROS[: end - start]:
            used = start + len(chunk.rstrip(b"\0"))
    return file.start + used


def _zero(file: Segment, start: int, end: int) -> None:
    for at in range(start, end, len(_ZEROS)):
        stop = min(end, at + len(_ZEROS))
        file.write(at, _ZEROS[: stop - at])
