"""DLedger's files on disk: entries in data segments, units in index segments, and their names.

All numbers are big-endian and signed, except the two checksums.

    entry (48 bytes, then the body)                 index unit (32 bytes)
    offset size field                               offset size field
         0    4 magic      1 NORMAL, 2 NOOP              0    4 magic
         4    4 size       48 + body_size                4    8 pos    real offset in data
         8    8 index      the first entry is 0         12    4 size
        16    8 term                                    16    8 index
        24    8 pos        offset in the data files     24    8 term
        32    4 channel    0, a producer's (`channels`), or a kind of NOOP (`memberships`)
        36    4 chain_crc                           blank record, to the end of its segment
        40    4 body_crc                                 0    4 magic  -1
        44    4 body_size                                4    4 size   at least 8

A segment's name is the offset of its first byte, in 20 digits; its length is the configured size. A
record never crosses a segment: a record that does not fit, with 8 bytes to spare for a blank, goes
to the next.

The layout is Java DLedger's (`DLedgerEntryCoder`, `DLedgerIndexEntry`, `SegmentList`). Java leaves
both checksums 0 and never reads them; 0 therefore means "not covered". This project writes:

    body_crc    CRC-32 of the body
    chain_crc   CRC-32 of the 48 header bytes with chain_crc taken as 0, continued from the
                chain_crc of the entry before (from 0 for entry 0, and if the entry
                before is not covered)

So the chain_crc of one entry covers every header before it, and through body_crc every body.
"""

import struct
from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple, TypeAlias

from dledger_formats.log.checksum import crc32

NORMAL: Final = 1
NOOP: Final = 2
BLANK: Final = -1
ENTRY_MAGICS: Final = (NORMAL, NOOP)

ENTRY_HEADER: Final = struct.Struct(">iiqqqiIIi")
ENTRY_HEADER_SIZE: Final = 48
_HEADER_BEFORE_CHAIN: Final = struct.Struct(">iiqqqi4xIi")
POS_OFFSET: Final = 24
CHAIN_CRC_OFFSET: Final = 36
INDEX_UNIT: Final = struct.Struct(">iqiqq")
INDEX_UNIT_SIZE: Final = 32
# Columns are copied in words of four bytes; every field of both records consists of such words.
_HEADER_WORDS: Final = ENTRY_HEADER_SIZE // 4
_CHAIN_CRC_WORD: Final = CHAIN_CRC_OFFSET // 4
_UNIT_WORDS: Final = INDEX_UNIT_SIZE // 4
_HEADER_WORDS_OF_UNIT: Final = (0, 6, 7, 1, 2, 3, 4, 5)  # magic, pos, size, index, term
BLANK_HEADER: Final = struct.Struct(">ii")
BLANK_SIZE_MIN: Final = 8
ENTRY_SIZE_MAX: Final = 4 * 1024 * 1024  # Java's encode buffer
BODY_SIZE_MAX: Final = ENTRY_SIZE_MAX - ENTRY_HEADER_SIZE
FILE_NAME_DIGITS: Final = 20
DATA_FOLDER: Final = "data"
INDEX_FOLDER: Final = "index"

assert ENTRY_HEADER.size == ENTRY_HEADER_SIZE == _HEADER_BEFORE_CHAIN.size
assert INDEX_UNIT.size == INDEX_UNIT_SIZE
assert BLANK_HEADER.size == BLANK_SIZE_MIN

Buffer: TypeAlias = bytes | bytearray | memoryview


class DamagedRecordError(Exception):
    """The bytes at the place of a record are not a sound record.

    `reason` is one word for machines: short_header, short_body, bad_magic, bad_size, bad_body_crc,
    bad_chain_crc; or bad_index, bad_term, bad_pos for a sound entry in the wrong place.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class EntryHeader(NamedTuple):
    """The 48 bytes before a body, in the order of the file."""

    magic: int
    size: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used here
    term: int
    pos: int
    channel: int
    chain_crc: int
    body_crc: int
    body_size: int


class IndexUnit(NamedTuple):
    """The place of an entry: the 32 bytes at `index * 32` of the index files."""

    magic: int
    pos: int
    size: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used here
    term: int


class PackedEntries(NamedTuple):
    """Consecutive encoded entries of one segment, ready to be copied into it."""

    data: bytearray
    units: bytearray
    """The index units of the entries."""
    chain_crc: int
    """The chain_crc of the last entry, from which the next entry's is computed."""


def file_name(start_offset: int) -> str:
    """Return the name of the segment whose first byte has this offset."""
    return f"{start_offset:0{FILE_NAME_DIGITS}d}"


def start_offset(name: str) -> int:
    """Return the offset that a segment's name states. Raises ValueError for any other text."""
    if len(name) != FILE_NAME_DIGITS or not (name.isascii() and name.isdigit()):
        raise ValueError(
            f"{name!r} is not a segment's name: {FILE_NAME_DIGITS} digits are expected"
        )
    return int(name)


def body_crc(body: Buffer) -> int:
    """Return the checksum of a body. A checksum that happens to be 0 is read as "not covered"."""
    return crc32(body)


def pack_entries(
    bodies: Sequence[Buffer],
    *,
    magic: int,
    first_index: int,
    term: int,
    pos: int,
    previous_chain_crc: int,
    channels: Sequence[int] | None = None,
) -> PackedEntries:
    """Encode one or more consecutive entries, the first at `pos`, a position in the data files.
    `channels` has one channel for each body; None means 0 for all.

    This function limits a node's append rate. So the loop computes only values that depend on the
    previous entry, and calls only C functions. Everything else is computed by columns, with one
    call for all entries.
    """
    pack_header = _HEADER_BEFORE_CHAIN.pack
    chain_crc, index = previous_chain_crc, first_index
    headers: list[bytes] = []
    chain_crcs: list[int] = []
    for body, channel in zip(bodies, repeat(0) if channels is None else channels, strict=False):
        body_size = len(body)
        size = ENTRY_HEADER_SIZE + body_size
        header = pack_header(magic, size, index, term, pos, channel, crc32(body), body_size)
        chain_crc = crc32(header, chain_crc)
        headers.append(header)
        chain_crcs.append(chain_crc)
        pos += size
        index += 1
    count = len(headers)
    rows = bytearray().join(headers)
    words, chain_words = memoryview(rows).cast("I"), struct.pack(f">{count}I", *chain_crcs)
    words[_CHAIN_CRC_WORD::_HEADER_WORDS] = memoryview(chain_words).cast("I")
    parts: list[Buffer] = [b""] * (2 * count)
    parts[::2] = struct.Struct("48s" * count).unpack(rows)
    parts[1::2] = bodies
    return PackedEntries(bytearray().join(parts), _units_of(words, count), chain_crc)


def _units_of(header_words: memoryview, count: int) -> bytearray:
    """Return the index units of consecutive entries, from the words of their headers."""
    units = bytearray(count * INDEX_UNIT_SIZE)
    unit_words = memoryview(units).cast("I")
    for number, header_number in enumerate(_HEADER_WORDS_OF_UNIT):
        unit_words[number::_UNIT_WORDS] = header_words[header_number::_HEADER_WORDS]
    return units


def chain_crc_of(header: EntryHeader, previous_chain_crc: int) -> int:
    """Return the chain_crc that this header should have after an entry with the given chain_crc."""
    return crc32(ENTRY_HEADER.pack(*header._replace(chain_crc=0)), previous_chain_crc)


def unpack_header(source: Buffer, at: int) -> EntryHeader:
    """Read a header without checks. Raises DamagedRecordError if the bytes end too early."""
    if len(source) - at < ENTRY_HEADER_SIZE:
        raise DamagedRecordError("short_header", f"only {max(0, len(source) - at)} bytes are left")
    return EntryHeader._make(ENTRY_HEADER.unpack_from(source, at))


def check_entry(
    source: Buffer, at: int, limit: int, previous_chain_crc: int | None = None
) -> EntryHeader:
    """Read the header of the entry at byte `at`, and check its sizes and checksums.

    `limit` is the end of the bytes that may belong to the entry. `previous_chain_crc` is the
    chain_crc of the entry before, or None if it is not known. The caller checks position, index and
    term, because it knows the entry before. Raises DamagedRecordError.
    """
    if limit - at < ENTRY_HEADER_SIZE:
        raise DamagedRecordError("short_header", f"only {max(0, limit - at)} bytes are left")
    header = unpack_header(source, at)
    if header.magic not in ENTRY_MAGICS:
        raise DamagedRecordError("bad_magic", f"unknown magic {header.magic} at byte {at}")
    if header.body_size < 0 or header.size != ENTRY_HEADER_SIZE + header.body_size:
        raise DamagedRecordError(
            "bad_size", f"size {header.size} contradicts a body of {header.body_size} at byte {at}"
        )
    end = at + header.size
    if end > limit:
        raise DamagedRecordError(
            "short_body", f"the last {end - limit} bytes of entry {header.index} are missing"
        )
    if header.body_crc and crc32(source[at + ENTRY_HEADER_SIZE : end]) != header.body_crc:
        raise DamagedRecordError(
            "bad_body_crc",
            f"the body of entry {header.index} at byte {at} does not match its checksum",
        )
    if header.chain_crc and previous_chain_crc is not None:
        expected = crc32(source[at + 40 : at + 48], _chain_prefix(source, at, previous_chain_crc))
        if expected != header.chain_crc:
            raise DamagedRecordError(
                "bad_chain_crc",
                f"the header of entry {header.index} at byte {at} does not match its checksum",
            )
    return header


def _chain_prefix(source: Buffer, at: int, previous_chain_crc: int) -> int:
    """Return the CRC of the header up to its chain_crc field, which counts as four zero bytes."""
    return crc32(b"\0\0\0\0", crc32(source[at : at + CHAIN_CRC_OFFSET], previous_chain_crc))


def unpack_index_unit(source: Buffer, at: int) -> IndexUnit:
    """Read the index unit at byte `at`."""
    return IndexUnit._make(INDEX_UNIT.unpack_from(source, at))


def needs_next_segment(entry_size: int, write_position: int, segment_size: int) -> bool:
    """Return whether an entry must go to the next segment (Java's `SegmentList.preAppend`)."""
    return entry_size + BLANK_SIZE_MIN > segment_size - write_position


def place_entry(size: int, pos: int, segment_size: int) -> int:
    """Return the position of an entry after one that ends at `pos`.

    Raises ValueError if no segment can hold it. The position depends only on sizes, so members
    whose segments have the same size have the same layout.
    """
    write_position = pos % segment_size
    if not needs_next_segment(size, write_position, segment_size):
        return pos
    if needs_next_segment(size, 0, segment_size):
        raise ValueError(f"an entry of {size} bytes does not fit a segment of {segment_size}")
    return pos + segment_size - write_position
