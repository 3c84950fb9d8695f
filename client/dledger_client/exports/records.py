"""The format of an export: a head, one record for each entry, and a record that marks the end.

All numbers are big-endian and signed, except sizes and checksums.

    head        8 bytes  "DLEXPORT"
                4        version: 1
                4        size of the JSON
                         JSON: {"group": name, "firstIndex": index of the first entry}
                4        CRC-32 of everything before
    record      1        kind: 1 entry, 2 no-op of a leader, 3 end
                4        size of the body
                8        index; of the end, the index after the last entry
                8        term; of the end, 0
                4        channel, as in the log; of the end, 0
                         body
                4        CRC-32 of the record up to here, continued from the checksum before it

Each checksum continues the one before; the first record's continues the head's. So a record that
was changed, removed, repeated or moved is detected at its place. A stream without its end was cut.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from dledger_formats.log import disk
from dledger_formats.log.checksum import crc32
from dledger_formats.protocol.entry import DLedgerEntry

MAGIC: Final = b"DLEXPORT"
VERSION: Final = 1
END: Final = 3
"""The kind of the last record; the kinds of entries are the magics of `disk`."""
HEAD: Final = struct.Struct(">8sII")
HEAD_JSON_BYTES_MAX: Final = 4096
RECORD: Final = struct.Struct(">BIqqi")
CHECKSUM: Final = struct.Struct(">I")


class ExportError(Exception):
    """An export cannot be read or extended; the message names the place."""


class WrongSourceError(ExportError):
    """The file is not an export, or not one of this log, or the folder is not a member's."""


class CutExportError(ExportError):
    """An export was cut: it has no end record."""


class Head(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The head of an export."""

    group: str
    first_index: int


class ExportedEntry(NamedTuple):
    """One entry of an export."""

    kind: int
    """disk.NORMAL or disk.NOOP"""
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used here
    term: int
    channel: int
    body: bytes


def is_mark(kind: int, body: bytes, mark: bytes | None) -> bool:
    """Return whether an entry is the mark of a cut-over: one that a client has appended."""
    return kind == disk.NORMAL and body == mark


def pack_head(head: Head) -> tuple[bytes, int]:
    """Encode a head; return it with its checksum, from which the first record's continues."""
    json = msgspec.json.encode(head)
    raw = HEAD.pack(MAGIC, VERSION, len(json)) + json
    checksum = crc32(raw)
    return raw + CHECKSUM.pack(checksum), checksum


def pack_entries(entries: Iterable[DLedgerEntry], checksum: int) -> tuple[bytes, int]:
    """Encode entries after a record with this checksum; return them with the last checksum."""
    parts: list[bytes] = []
    for entry in entries:
        body = entry.body
        fields = RECORD.pack(entry.magic, len(body), entry.index, entry.term, entry.channel)
        checksum = crc32(body, crc32(fields, checksum))
        parts += (fields, body, CHECKSUM.pack(checksum))
    return b"".join(parts), checksum


def pack_end(next_index: int, checksum: int) -> bytes:
    """Encode the end of an export."""
    fields = RECORD.pack(END, 0, next_index, 0, 0)
    return fields + CHECKSUM.pack(crc32(fields, checksum))


def decode_head(json: bytes) -> Head:
    """Decode the JSON of a head. Raises ExportError."""
    try:
        return msgspec.json.decode(json, type=Head)
    except msgspec.DecodeError as error:
        raise ExportError(f"the head of the export is malformed: {error}") from error
