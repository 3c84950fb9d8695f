"""What must become of each entry up to the clean point, worked out from the sources alone.

Every entry with a key is written to one of many files, by a checksum of its key. Each file is then
read by itself: an entry supersedes the one of its key before it. So the memory holds the keys
of one file, and one byte for each entry.
"""

import enum
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import numpy as np

from dledger_formats.log import disk
from dledger_formats.log.checksum import crc32
from pyspark_dledger.keys import Decoder
from pyspark_dledger.layout import Bytes

KEYS_PER_BUCKET: Final = 1 << 19
BUCKETS_MAX: Final = 256
_RECORD: Final = struct.Struct(">q?I")


class Fate(enum.IntEnum):
    """What must become of an entry."""

    UNKNOWN = 0
    """The sources do not have the entry."""
    NOT_NORMAL = 1
    """A no-op or a membership stays as it is."""
    WITHOUT_KEY = 2
    """An entry without a key stays."""
    LAST = 3
    """The last value of its key stays."""
    SUPERSEDED = 4
    """An entry that has a later one of its key goes."""
    YOUNG_TOMBSTONE = 5
    """A tombstone that is the last of its key stays until its time has passed."""
    OLD_TOMBSTONE = 6
    """A tombstone that is the last of its key goes once its time has passed."""


STAYS: Final = frozenset({Fate.NOT_NORMAL, Fate.WITHOUT_KEY, Fate.LAST, Fate.YOUNG_TOMBSTONE})
_FATES: Final = tuple(Fate)


class Fates:
    """The fates of the entries `first_index` to `clean_index`. Use it as a context manager."""

    def __init__(self, first_index: int, clean_index: int, decode: Decoder) -> None:
        self._first_index = first_index
        self._clean_index = clean_index
        self._decode = decode
        count = max(0, clean_index - first_index + 1)
        self._fates: Bytes = np.zeros(count, np.uint8)
        self._folder = tempfile.TemporaryDirectory(prefix="dledger-proof-")
        self._files: list[BinaryIO] = []
        for number in range(min(BUCKETS_MAX, 1 + count // KEYS_PER_BUCKET)):
            path = Path(self._folder.name) / f"{number}"
            self._files.append(path.open("w+b", buffering=1 << 16))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for file in self._files:
            file.close()
        self._folder.cleanup()

    def note(self, index: int, magic: int, body: bytes) -> None:
        """Note an entry up to the clean point, in the order of the log."""
        at = index - self._first_index
        if magic != disk.NORMAL:
            self._fates[at] = Fate.NOT_NORMAL
            return
        decoded = self._decode(body)
        if decoded is None:
            self._fates[at] = Fate.WITHOUT_KEY
            return
        file = self._files[crc32(decoded.key) % len(self._files)]
        file.write(_RECORD.pack(index, decoded.is_tombstone, len(decoded.key)) + decoded.key)

    def decide(self, tombstone_entries: int) -> None:
        """Decide the fates of all noted entries with keys."""
        for file in self._files:
            last: dict[bytes, tuple[int, bool]] = {}
            for index, is_tombstone, key in _records(file):
                if key in last:
                    self._fates[last[key][0] - self._first_index] = Fate.SUPERSEDED
                last[key] = index, is_tombstone
            for index, is_tombstone in last.values():
                fate = Fate.LAST
                if is_tombstone:
                    entries_since = self._clean_index - index
                    is_young = entries_since < tombstone_entries
                    fate = Fate.YOUNG_TOMBSTONE if is_young else Fate.OLD_TOMBSTONE
                self._fates[index - self._first_index] = fate

    def of(self, index: int) -> Fate:
        """Return an entry's fate."""
        return _FATES[int(self._fates[index - self._first_index])]


def _records(file: BinaryIO) -> Iterator[tuple[int, bool, bytes]]:
    file.seek(0)
    while head := file.read(_RECORD.size):
        index, is_tombstone, size = _RECORD.unpack(head)
        yield index, is_tombstone, file.read(size)
