"""Read one member's log: what it holds, where entries lie, and their bytes."""

import dataclasses
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from dledger_formats.log.disk import Buffer, EntryHeader, IndexUnit
from dledger_node.errors import StoreDamagedError
from dledger_node.shortages import is_passing
from dledger_node.store.log.files import LogFiles, NotCachedError
from dledger_node.store.log.stored_range import RangeMovedError, StoredRange
from dledger_node.store.log.writer import LogWriter

ReadT = TypeVar("ReadT")
Runs: TypeAlias = list[bytes | bytearray]
"""Stored bytes of consecutive whole entries, one run per segment."""

READ_AHEAD_BYTES: Final = 4 << 20
"""Bytes after a push that the kernel reads in the background, once the disk had to be read."""


class LogReader:
    """The readable half of a `LogStore`; any thread may read.

    A reader sees entries up to `end_index`, which a write moves last.
    """

    def __init__(self, files: LogFiles, writer: LogWriter, verified_index: int) -> None:
        """Read `files`; this process has verified all entries from `verified_index` on."""
        self._damage: StoreDamagedError | None = None
        self.generation = 0
        """The number of times that entries were truncated, or the log replaced."""
        self._files = files
        self._cached_files = dataclasses.replace(files, wait=False)
        self._writer = writer
        self._verified_index = verified_index

    @property
    def damage(self) -> StoreDamagedError | None:
        """The damage that a read found; it stays until the member has mended it or stops.

        A read that failed for lack of descriptors or memory has found none, so it is not kept.
        """
        return self._damage

    @damage.setter
    def damage(self, found: StoreDamagedError | None) -> None:
        if found is None or not is_passing(found):
            self._damage = found

    @property
    def begin_index(self) -> int:
        """Index of the first entry; 0 for an empty log."""
        return self._writer.begin_index

    @property
    def end_index(self) -> int:
        """Index of the last entry; -1 for an empty log."""
        return self._writer.end_index

    @property
    def is_empty(self) -> bool:
        """Whether the log has no entry (`LogWriter.is_empty`)."""
        return self._writer.is_empty

    @property
    def end_term(self) -> int:
        """Term of the last entry; -1 for an empty log."""
        return self._writer.end_term

    def term_runs(self) -> list[tuple[int, int]]:
        """Return (first index, term) for each run of entries of the same term."""
        return list(self._writer.term_runs)

    def position(self, index: int) -> IndexUnit:
        """Return the index unit of an entry. Raises IndexError outside the log."""
        self._check_range(index, index)
        try:
            return self._files.unit(index)
        except StoreDamagedError as error:
            self.note_damage(error, index)
            raise

    def cached_position(self, index: int) -> IndexUnit | None:
        """Return an entry's index unit as `position` does; None if the disk must be read."""
        self._check_range(index, index)
        try:
            return self._cached_files.unit(index)
        except NotCachedError:
            return None
        except StoreDamagedError as error:
            self.note_damage(error, index)
            raise

    def positions(self, first_index: int, last_index: int) -> list[int]:
        """Return where entries begin in the data files.

        Raises IndexError outside the log, or if it was just cut off or closed.
        """
        self._check_range(first_index, last_index)
        try:
            return self._writer.positions(first_index, last_index)
        except ValueError as error:
            raise IndexError(str(error)) from error
        except StoreDamagedError as error:
            self.note_damage(error, first_index)
            raise

    def entry(self, index: int) -> tuple[EntryHeader, bytes]:
        """Read one entry and verify all its checksums.

        Raises IndexError outside the log, StoreDamagedError if a checksum does not match.
        """
        self._check_range(index, index)
        try:
            return self._files.checked_entry(index, self._writer.begin)
        except StoreDamagedError as error:
            self.note_damage(error, index)
            raise

    def tail(self, first_index: int, last_index: int) -> Buffer | None:
        """Return the stored bytes of these entries if they are the last run written, else None.

        Only the thread that writes may call this.
        """
        return self._writer.tail(first_index, last_index)

    def cached_run(self, first_index: int, last_index: int, bytes_max: int) -> bytes | None:
        """Return the stored bytes of these entries; does not block.

        Returns None unless one segment holds all of them, they are in memory or in the page cache,
        have at most `bytes_max` bytes, and this process wrote or verified them. Only the thread
        that writes may call this. Raises RangeMovedError and StoreDamagedError as `stored_range`
        does.
        """
        tail = self._writer.tail(first_index, last_index)
        if tail is not None:
            return bytes(tail) if len(tail) <= bytes_max else None
        if first_index < self._verified_index:
            return None
        stored = self.stored_range(first_index, last_index, bytes_max, wait=False)
        if stored is None or stored.last.index < last_index or stored.size > bytes_max:
            return None
        data = stored.read_cached()
        return None if data is None else bytes(data)

    def read_range(
        self, first_index: int, last_index: int, bytes_max: int
    ) -> tuple[list[bytes], int]:
        """Return the stored bytes of whole entries, one run per segment, and their last index.

        Returns at least one entry, then as many as `bytes_max` allows. Verifies entries that this
        process neither wrote nor verified, and those marked by `distrust`. Raises IndexError
        outside the log, StoreDamagedError if a checksum does not match.
        """
        self._check_range(first_index, last_index)
        try:
            runs, last_index = self._runs(self._files, first_index, last_index, bytes_max)
        except StoreDamagedError as error:
            self.note_damage(error, first_index)
            raise
        return [bytes(run) for run in runs], last_index

    def range_to_push(
        self, first_index: int, last_index: int, bytes_max: int, *, wait: bool
    ) -> tuple[Runs, int] | None:
        """Return whole entries as `read_range` does, for a push to a follower.

        Returns None if that needs a disk read and `wait` is false. After a disk read, the kernel
        reads ahead, since more will be pushed. Raises RangeMovedError and StoreDamagedError as
        `stored_range` does.
        """

        def read(files: LogFiles) -> tuple[Runs, int]:
            runs, last_read = self._runs(files, first_index, last_index, bytes_max)
            if wait and last_read < last_index:
                end_pos = files.end_pos(last_read)
                following = files.data.file_at(end_pos)
                following.read_ahead(end_pos - following.start, READ_AHEAD_BYTES)
            return runs, last_read

        return self._unless_moved(read, first_index, last_index, wait=wait)

    def stored_at(self, pos: int, size: int) -> bytes:
        """Return the stored bytes from a position on, fewer at the end of a segment; blocks.

        Verifies nothing. Raises LookupError if no segment holds them, or it was just removed.
        """
        if pos < 0:
            raise LookupError(f"no entry begins at {pos}")
        try:
            file = self._files.data.file_at(pos)
            return file.read(pos - file.start, size)
        except (LookupError, ValueError, StoreDamagedError) as error:
            raise LookupError(str(error)) from error

    def cached_at(self, pos: int, buffer: memoryview) -> bool:
        """Fill a buffer with the stored bytes from a position on; does not block.

        Returns whether one segment holds all, and all are in the page cache. Verifies nothing.
        """
        if pos < 0:
            return False
        try:
            file = self._files.data.file_at(pos)
            return file.read_cached_into(pos - file.start, buffer)
        except (LookupError, ValueError, StoreDamagedError):
            return False

    def checked_range(
        self, first_index: int, last_index: int, bytes_max: int, *, wait: bool
    ) -> Runs | None:
        """Return the runs that `read_range` does, after verifying every checksum of every entry.

        Returns None if that needs a disk read and `wait` is false. Raises RangeMovedError and
        StoreDamagedError as `stored_range` does.
        """

        def read(files: LogFiles) -> Runs:
            begin = self._writer.begin
            first = files.checked_bytes(first_index, begin)
            if first_index == last_index or len(first) >= bytes_max:
                return [first]
            last_within = files.last_within(first_index, last_index, bytes_max)
            return files.checked_runs(first_index, last_within, begin)

        return self._unless_moved(read, first_index, last_index, wait=wait)

    def stored_range(
        self, first_index: int, last_index: int, bytes_max: int, *, wait: bool = True
    ) -> StoredRange | None:
        """Return the place of a run of at least one entry in one segment, without reading it.

        Returns None if that needs a disk read and `wait` is false. Verifies no checksum: the
        receiver of the bytes must. Raises RangeMovedError outside the log or once it is closed, and
        StoreDamagedError if the index is wrong.
        """
        generation = self.generation
        try:
            self._check_range(first_index, last_index)
            run = self._files.segment_run(first_index, last_index, bytes_max, wait=wait)
        except (IndexError, ValueError) as error:
            raise RangeMovedError(str(error)) from error
        except StoreDamagedError as error:
            if first_index < self.begin_index or generation != self.generation:
                raise RangeMovedError(str(error)) from error
            self.note_damage(error, first_index)
            raise
        if run is None:
            return None
        file, first, last = run
        return StoredRange(file=file, first=first, last=last, generation=generation)

    def still_holds(self, stored: StoredRange) -> bool:
        """Return whether the log still has the entries of a range that was located earlier."""
        return self.generation == stored.generation and self.begin_index <= stored.first.index

    def distrust(self) -> None:
        """Make every later read verify the entries that the log holds now."""
        self._verified_index = self._writer.end_index + 1

    def _runs(
        self, files: LogFiles, first_index: int, last_index: int, bytes_max: int
    ) -> tuple[Runs, int]:
        last_index = files.last_within(first_index, last_index, bytes_max)
        if first_index < self._verified_index:
            return files.checked_runs(first_index, last_index, self._writer.begin), last_index
        return files.runs(first_index, last_index), last_index

    def _unless_moved(
        self,
        read: Callable[[LogFiles], ReadT],
        first_index: int,
        last_index: int,
        *,
        wait: bool,
    ) -> ReadT | None:
        """Return what `read` returns; None if that needs a disk read and `wait` is false.

        Any thread may call. Raises RangeMovedError instead of StoreDamagedError if the log was cut
        or lost its front meanwhile.
        """
        before = self._writer.begin, self.generation
        try:
            self._check_range(first_index, last_index)
            return read(self._files if wait else self._cached_files)
        except NotCachedError:
            return None
        except (IndexError, ValueError) as error:
            raise RangeMovedError(str(error)) from error
        except StoreDamagedError as error:
            if before != (self._writer.begin, self.generation):
                raise RangeMovedError(str(error)) from error
            self.note_damage(error, first_index)
            raise

    def note_damage(self, error: StoreDamagedError, first_index: int) -> None:
        """Remember the damage that a read from `first_index` on found, and its place."""
        if error.index is None:
            error.index = first_index
        self.damage = error

    def _check_range(self, first_index: int, last_index: int) -> None:
        if not self.begin_index <= first_index <= last_index <= self.end_index:
            raise IndexError(
                f"entries {first_index} to {last_index} requested, but the log holds "
                f"{self.begin_index} to {self.end_index}"
            )
