"""Reading an export piece by piece, in bounded memory."""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from dledger_client.exports.records import (
    CHECKSUM,
    END,
    HEAD,
    HEAD_JSON_BYTES_MAX,
    MAGIC,
    RECORD,
    VERSION,
    CutExportError,
    ExportedEntry,
    ExportError,
    Head,
    WrongSourceError,
    decode_head,
    is_mark,
)
from dledger_formats.log import disk
from dledger_formats.log.checksum import crc32

PIECE_BYTES: Final = 1 << 20
_KINDS: Final = (*disk.ENTRY_MAGICS, END)

OnBytes: TypeAlias = Callable[[int], object]
"""Called with the number of further bytes of a file that were decoded."""


class ExportDecoder:
    """Decodes an export; the pieces that it is given may end anywhere."""

    def __init__(self, name: str, mark: bytes | None = None) -> None:
        """`name` is the name of the export in messages."""
        self.head: Head | None = None
        self.last: ExportedEntry | None = None
        """The last entry that was decoded."""
        self.checksum = 0
        """The checksum of that entry, or of the head."""
        self.offset = 0
        """The byte after that entry, or after the head."""
        self.next_index = 0
        """The index after that entry."""
        self.records = 0
        """Number of entries that were decoded."""
        self.is_complete = False
        """Whether the end was decoded."""
        self.damage: ExportError | None = None
        """What is wrong after that entry; `feed` has returned the sound entries before it."""
        self.mark_index: int | None = None
        """The index of the first entry that is `mark`."""
        self._mark = mark
        self._name = name
        self._rest = b""

    def feed(self, piece: bytes) -> list[ExportedEntry]:
        """Return the entries that end in the next piece of the export.

        Entries before damage are returned, and `damage` is set. The next call raises it, and so
        does `finish`. Raises ExportError at once if the head is invalid.
        """
        if self.damage is not None:
            raise self.damage
        data = self._rest + piece if self._rest else piece
        at = self._feed_head(data) if self.head is None else 0
        if self.head is None:
            self._rest = data
            return []
        entries, at = self._entries(data, at)
        self._rest = data[at:]
        if self.is_complete and self._rest:
            self.damage = ExportError(
                f"{self._name} has bytes after its end, entry {self.next_index - 1}"
            )
        return entries

    def finish(self) -> None:
        """Raise the damage if there is any, and CutExportError unless the end was decoded."""
        if self.damage is not None:
            raise self.damage
        if self.head is None:
            raise WrongSourceError(f"{self._name} is not an export: it ends in its head")
        if not self.is_complete:
            before = f"after entry {self.next_index - 1}" if self.records else "before any entry"
            raise CutExportError(
                f"{self._name} was cut {before}: record {self.records + 1}, which would be entry "
                f"{self.next_index} or the end, is not whole"
            )

    def _entries(self, data: bytes, at: int) -> tuple[list[ExportedEntry], int]:
        """Return the whole entries in `data` from byte `at` on, and the byte after them."""
        entries: list[ExportedEntry] = []
        unpack, header_size, length = RECORD.unpack_from, RECORD.size, len(data)
        while at + header_size <= length and not self.is_complete:
            kind, size, index, term, channel = unpack(data, at)
            if kind not in _KINDS or size > disk.BODY_SIZE_MAX or index != self.next_index:
                self.damage = self._damaged(f"kind {kind}, {size} bytes, index {index}")
                break
            body_at, crc_at = at + header_size, at + header_size + size
            if crc_at + CHECKSUM.size > length:
                break
            checksum = crc32(data[at:crc_at], self.checksum)
            if checksum != CHECKSUM.unpack_from(data, crc_at)[0]:
                self.damage = self._damaged("its checksum does not match")
                break
            at = crc_at + CHECKSUM.size
            if kind == END:
                self.is_complete = True
                break
            entries.append(ExportedEntry(kind, index, term, channel, data[body_at:crc_at]))
            self.checksum = checksum
            self.offset += header_size + size + CHECKSUM.size
            self.next_index += 1
            self.records += 1
        if entries:
            self.last = entries[-1]
        if self._mark is not None and self.mark_index is None:
            marks = (one.index for one in entries if is_mark(one.kind, one.body, self._mark))
            self.mark_index = next(marks, None)
        return entries, at

    def _damaged(self, what: str) -> ExportError:
        return ExportError(
            f"record {self.records + 1} of {self._name}, where entry {self.next_index} belongs, is "
            f"damaged: {what}"
        )

    def _feed_head(self, data: bytes) -> int:
        """Decode the head if it is whole, and return its size."""
        known = data[: len(MAGIC)]
        if not MAGIC.startswith(known):
            raise WrongSourceError(f"{self._name} is not an export")
        if len(data) < HEAD.size:
            return 0
        _, version, size = HEAD.unpack_from(data)
        if version != VERSION or size > HEAD_JSON_BYTES_MAX:
            raise ExportError(
                f"{self._name} has a head of version {version} and {size} bytes; this program "
                f"reads version {VERSION}"
            )
        end = HEAD.size + size
        if len(data) < end + CHECKSUM.size:
            return 0
        if crc32(data[:end]) != CHECKSUM.unpack_from(data, end)[0]:
            raise ExportError(f"the head of {self._name} is damaged: its checksum does not match")
        self.head, self.checksum = decode_head(data[HEAD.size : end]), crc32(data[:end])
        self.next_index = self.head.first_index
        self.offset = end + CHECKSUM.size
        return self.offset


def decode_file(path: Path, mark: bytes | None = None) -> Iterator[ExportDecoder]:
    """Decode a file, and yield the decoder after each piece; the caller must call `finish`.

    Raises ExportError at the record that is damaged, or OSError.
    """
    decoder = ExportDecoder(os.fspath(path), mark)
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            decoder.feed(piece)
            if decoder.damage is not None:
                raise decoder.damage
            yield decoder


async def verify_file(path: Path, on_bytes: OnBytes = lambda _: None) -> None:
    """Check a whole file; can be cancelled. Raises ExportError or OSError."""
    decoder = await _last_decoder(path, on_bytes) or ExportDecoder(os.fspath(path))
    decoder.finish()


async def resume_point(
    path: Path, on_bytes: OnBytes = lambda _: None, mark: bytes | None = None
) -> ExportDecoder | None:
    """Decode the export in a file that is to be extended; None if it has no entry.

    After the last entry, only the end record or the beginning of a record is allowed, as an
    interrupted writer leaves it. Can be cancelled. Raises ExportError for any other damage, or
    OSError.
    """
    decoder = await _last_decoder(path, on_bytes, mark)
    return decoder if decoder is not None and decoder.records else None


async def _last_decoder(
    path: Path, on_bytes: OnBytes, mark: bytes | None = None
) -> ExportDecoder | None:
    decoder, reported = None, 0
    for decoder in decode_file(path, mark):
        on_bytes(decoder.offset - reported)
        reported = decoder.offset
        await asyncio.sleep(0)  # a cancellation takes effect here
    return decoder
