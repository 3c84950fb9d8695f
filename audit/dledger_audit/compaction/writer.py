"""Write an archive's log: DLedger's files, with positions, index units and checksums of their own.

Every index keeps its place in the order, and its term. An entry that goes becomes an empty no-op.
What stays keeps its magic, channel and body. The bytes depend on the entries alone: not on the copy
that they came from, nor on the number of entries at a time.

The data files are sparse after their last record, and read as zeros there.
"""

import hashlib
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from dledger_formats.folders import sync_folder
from dledger_formats.log import disk, memberships
from dledger_formats.log.archives import FileDigest
from dledger_formats.log.checksum import crc32
from pyspark_dledger.intact import Slice
from pyspark_dledger.layout import HEADER, UNIT, Bools, Longs, Records

_HEADER_FORMAT: Final = f"{disk.ENTRY_HEADER_SIZE}s"


class LogWriter:
    """Writes entries, which must follow each other, to a folder that has no log yet."""

    def __init__(
        self, folder: Path, *, segment_bytes: int, index_segment_bytes: int, first_index: int
    ) -> None:
        self._data = _Files(folder / disk.DATA_FOLDER, segment_bytes)
        self._index = _Files(folder / disk.INDEX_FOLDER, index_segment_bytes)
        self._segment_bytes = segment_bytes
        self._chain_crc = 0
        self.next_index = first_index
        self.last_term = -1
        self.membership = memberships.MembershipBody((), ())
        """The last membership that was written; it has no voters if there was none."""
        unit_pos = first_index * disk.INDEX_UNIT_SIZE
        self._index.begin(unit_pos - unit_pos % index_segment_bytes)
        self._index.write_through(bytes(unit_pos % index_segment_bytes))
        # The file at position 0 begins with entry 0, for nodes and for Java.
        self._data.begin(segment_bytes if first_index else 0)

    def append(self, entries: Slice, keeps: Bools) -> None:
        """Write these entries; those that `keeps` excludes become no-ops.

        Raises ValueError if they do not follow the entries before.
        """
        part = slice(entries.start, entries.end)
        old, count = entries.entries.headers[part], len(entries)
        terms = old["term"].astype(np.int64)
        if (
            entries.first_index != self.next_index
            or np.diff(terms, prepend=self.last_term).min() < 0
        ):
            raise ValueError(f"entry {entries.first_index} does not follow {self.next_index - 1}")
        headers = np.zeros(count, HEADER)
        headers["magic"] = np.where(keeps, old["magic"], disk.NOOP)
        body_sizes = np.where(keeps, entries.entries.bodies.sizes[part], 0)
        headers["size"] = body_sizes + disk.ENTRY_HEADER_SIZE
        headers["index"] = entries.entries.index[part]
        headers["term"] = terms
        headers["channel"] = np.where(keeps, old["channel"], 0)
        headers["body_crc"] = np.where(keeps, entries.entries.crc[part], 0)
        headers["body_size"] = body_sizes
        starts = entries.entries.bodies.offsets[part]
        self._place(headers, entries.entries.view.data, starts, body_sizes)
        self._note_memberships(entries, headers)
        self.next_index += count
        self.last_term = int(terms[-1])

    def finish(self) -> list[FileDigest]:
        """Sync and close the last files; return the digests of all files, in order."""
        return [*self._data.finish(), *self._index.finish()]

    def close(self) -> None:
        """Close the files after a failure."""
        self._data.close()
        self._index.close()

    def _note_memberships(self, entries: Slice, headers: Records) -> None:
        """Keep the last membership of these entries."""
        is_membership = headers["channel"] == memberships.MEMBERSHIP_CHANNEL
        found = np.flatnonzero(is_membership & (headers["magic"] == disk.NOOP))
        if len(found):
            at, bodies = entries.start + int(found[-1]), entries.entries.bodies
            start, size = int(bodies.offsets[at]), int(bodies.sizes[at])
            self.membership = memberships.decode(entries.entries.view.data[start : start + size])

    def _place(self, headers: Records, raw: memoryview, starts: Longs, body_sizes: Longs) -> None:
        """Write entries, as many to each segment as fit."""
        sizes = headers["size"].astype(np.int64)
        ends = np.cumsum(sizes)
        done, count = 0, len(headers)
        while done < count:
            before = int(ends[done - 1]) if done else 0
            room = self._segment_bytes - disk.BLANK_SIZE_MIN - self._data.used_bytes
            fit = int(np.searchsorted(ends, before + room, side="right"))
            if fit == done:
                self._roll(int(sizes[done]))
                continue
            part = slice(done, fit)
            positions = self._data.pos + ends[part] - sizes[part] - before
            self._write(headers[part], positions, raw, starts[part], body_sizes[part])
            done = fit

    def _roll(self, size: int) -> None:
        left = self._segment_bytes - self._data.used_bytes
        if not self._data.used_bytes:
            raise ValueError(f"an entry of {size} bytes does not fit a segment of {left}")
        self._data.write(disk.BLANK_HEADER.pack(disk.BLANK, left))
        self._data.roll()

    def _write(
        self,
        headers: Records,
        positions: Longs,
        raw: memoryview,
        starts: Longs,
        body_sizes: Longs,
    ) -> None:
        """Write consecutive entries to the current segment, and their index units."""
        headers["pos"] = positions
        count = len(headers)
        headers["chain_crc"] = self._chain(headers.tobytes(), count)
        parts: list[bytes | memoryview] = [b""] * (2 * count)
        parts[::2] = struct.unpack(_HEADER_FORMAT * count, headers.tobytes())
        spans = zip(starts.tolist(), (starts + body_sizes).tolist(), strict=True)
        parts[1::2] = [raw[start:end] for start, end in spans]
        self._data.write(b"".join(parts))
        units = np.zeros(count, UNIT)
        for name in disk.IndexUnit._fields:
            units[name] = headers[name]
        self._index.write_through(units.tobytes())

    def _chain(self, raw: bytes, count: int) -> Sequence[int]:
        """Continue the chain of checksums over headers whose chain_crc is 0."""
        chain_crc, chain_crcs = self._chain_crc, []
        for header in struct.unpack(_HEADER_FORMAT * count, raw):
            chain_crc = crc32(header, chain_crc)
            chain_crcs.append(chain_crc)
        self._chain_crc = chain_crc
        return chain_crcs


class _Files:
    """Files of one length, which follow each other; each is synced once it is complete."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._file_bytes = file_bytes
        self._digests: list[FileDigest] = []
        self._hash = hashlib.sha256()
        self._fd = -1
        self._start = 0
        self.used_bytes = 0

    @property
    def pos(self) -> int:
        """Position of the next byte, counted over all files."""
        return self._start + self.used_bytes

    def begin(self, start: int) -> None:
        """Create the file whose first byte has this position."""
        path = self._folder / disk.file_name(start)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        os.ftruncate(self._fd, self._file_bytes)
        self._start, self.used_bytes = start, 0
        self._hash = hashlib.sha256()

    def write(self, raw: bytes) -> None:
        """Write to the current file, which has room."""
        assert len(raw) <= self._file_bytes - self.used_bytes
        self._hash.update(raw)
        view = memoryview(raw)
        while view:
            count = os.pwrite(self._fd, view, self.used_bytes)
            self.used_bytes += count
            view = view[count:]

    def write_through(self, raw: bytes) -> None:
        """Write, and continue in the next file when one is full."""
        while raw:
            room = self._file_bytes - self.used_bytes
            if not room:
                self.roll()
                continue
            self.write(raw[:room])
            raw = raw[room:]

    def roll(self) -> None:
        """Continue in the next file."""
        self._complete()
        self.begin(self._start + self._file_bytes)

    def finish(self) -> list[FileDigest]:
        """Complete the last file and the folder; return the digests."""
        self._complete()
        sync_folder(self._folder)
        return self._digests

    def close(self) -> None:
        """Close the current file."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _complete(self) -> None:
        os.fsync(self._fd)
        self.close()
        self._digests.append(
            FileDigest(
                name=f"{self._folder.name}/{disk.file_name(self._start)}",
                used_bytes=self.used_bytes,
                sha256=self._hash.hexdigest(),
            )
        )
