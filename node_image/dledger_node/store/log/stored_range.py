"""A run of whole entries of one segment: where it lies, and its bytes as they are stored."""

from dataclasses import dataclass

from dledger_formats.log import disk
from dledger_formats.log.disk import DamagedRecordError, IndexUnit
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.store.segments.segment import Segment


class RangeMovedError(Exception):
    """The segment was removed, or the log was closed, after the range was located."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRange:
    """The place of consecutive entries of one segment; any thread may read it."""

    file: Segment
    first: IndexUnit
    last: IndexUnit
    generation: int
    """Changes when entries are truncated or the log is replaced."""

    @property
    def at(self) -> int:
        """Byte of the segment where the first entry begins."""
        return self.first.pos - self.file.start

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.last.pos + self.last.size - self.first.pos

    def read_cached(self) -> bytearray | None:
        """Return the bytes if all of them are in the page cache; does not block.

        Raises StoreDamagedError, RangeMovedError.
        """
        try:
            data = self.file.read_cached(self.at, self.size)
        except ValueError as error:
            raise RangeMovedError(str(error)) from error
        if data is not None:
            self._check(data)
        return data

    def read(self, ahead_bytes: int) -> bytes:
        """Return the bytes, and let the kernel read `ahead_bytes` after them; blocks.

        Raises StoreDamagedError, RangeMovedError.
        """
        try:
            data = self.file.read(self.at, self.size)
            self.file.read_ahead(self.at + self.size, ahead_bytes)
        except ValueError as error:
            raise RangeMovedError(str(error)) from error
        except StoreDamagedError as error:
            if self.file.removed:
                raise RangeMovedError(str(error)) from error
            raise
        self._check(data)
        return data

    def _check(self, data: bytes | bytearray) -> None:
        """Check the first and the last entry against the index. Raises StoreDamagedError."""
        for unit, at in ((self.first, 0), (self.last, self.last.pos - self.first.pos)):
            try:
                header = disk.unpack_header(data, at)
            except DamagedRecordError as error:
                raise self._damage(unit, str(error)) from None
            found = (header.magic, header.pos, header.size, header.index, header.term)
            if found != tuple(unit):
                raise self._damage(unit, "the index and the entry's header disagree")

    def _damage(self, unit: IndexUnit, how: str) -> StoreDamagedError:
        return StoreDamagedError(
            f"entry {unit.index}: {self.file.path}, byte {unit.pos - self.file.start}: {how}. To "
            "rebuild the index files from the data, stop this member, empty the index folder and "
            "start it again",
            Damage.WRONG_INDEX,
            unit.index,
        )
