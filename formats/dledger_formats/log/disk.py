"""DLedger's files on disk: entries in data segments, units in index segments, and their names.

All numbers are big-endian and signed, except the two checksums.

    entry (48 bytes, then the body)                 index unit (32 bytes)
    offset size field                               offset size field
         0    4 magic      1 NORMAL, 2 NOOP              0    4 magic
         4    4 size       48 + body_size                4    8 pos    real offset in data
         8    8 index      the first entry is 0         12    4 size
        16    8 term                                    16    8 index
        24    8 pos        offset in the data files     24    8 term
        32    4 channel    0, who appended it (`channels`), or what a NOOP says (`memberships`)
        36    4 chain_crc                           blank record, to the end of its segment
        40    4 body_crc                                 0    4 magic  -1
        44    4 body_size                                4    4 size   at least 8

A segment's name is the offset of its first byte, in 20 digits; its length is the configured size. A
record never crosses a segment: what does not fit, with 8 bytes to spare for a blank, goes to the
next.

The layout is Java DLedger's (`DLedgerEntryCoder`, `DLedgerIndexEntry`, `SegmentList`). Java leaves
both checksums 0 and never reads them; 0 therefore means "not covered". Ours are:

    body_crc    CRC-32 of the body
    chain_crc   CRC-32 of the 48 header bytes with chain_crc taken as 0, continued from the
                chain_crc of the entry before (from 0 for entry 0, and where the one
                before is not covered)

so that the chain_crc of one entry answers for every header, and through body_crc every body, before
it.
"""

import struct
from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple, TypeAlias

from dledger_formats.log.channels import ChannelEntry
from dledger_formats.log.checksum import crc32

NORMAL: Final = 1
NOOP: Final = 2
BLANK: Final = -1
ENTRY_MAGICS: Final = (NORMAL, NOOP)

ENTRY_HEADER: Final = struct.Struct(">iiqqqiIIi")
ENTRY_HEADER_SIZE: Final = 48
_HEADER_BEFORE_CHAIN: Final = struct.Struct(">iiqqqi4xIi")
CHAIN_CRC_OFFSET: Final = 36
INDEX_UNIT: Final = struct.Struct(">iqiqq")
INDEX_UNIT_SIZE: Final = 32
# Columns are moved by words of four bytes, of which every field of both records is made.
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
    """Bytes that should hold a record do not.

    `reason` is one word for machines: short_header, short_body, bad_magic, bad_size, bad_body_crc,
    bad_chain_crc; or bad_index, bad_term, bad_pos for a sound entry that belongs elsewhere.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class EntryHeader(NamedTuple):
    """The 48 bytes in front of a body, in the order of the file."""

    magic: int
    size: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: int
    pos: int
    channel: int
    chain_crc: int
    body_crc: int
    body_size: int


class IndexUnit(NamedTuple):
    """Where an entry lies: the 32 bytes at `index * 32` of the index files."""

    magic: int
    pos: int
    size: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: int


class PackedEntries(NamedTuple):
    """Entries that follow one another in one segment, ready to be copied there."""

    data: bytearray
    units: bytearray
    """Their index units."""
    chain_crc: int
    """Of the last one: the seed of the next."""


class EntryScan(NamedTuple):
    """The entries that `scan_entries` took, and why it went no further."""

    end: int
    """Byte behind the last entry taken."""
    next_index: int
    chain_crc: int | None
    """Of the last entry taken."""
    units: bytes
    """Index units of the entries taken."""
    channels: list[ChannelEntry]
    """Those of them that have a channel."""
    damage: DamagedRecordError | None
    """Why the record at `end` was not taken; None at the limit, or when the count was reached."""


def file_name(start_offset: int) -> str:
    """Name of the segment whose first byte has this offset."""
    return f"{start_offset:0{FILE_NAME_DIGITS}d}"


def start_offset(name: str) -> int:
    """Offset of a segment's first byte; ValueError for a name that is none of ours."""
    if len(name) != FILE_NAME_DIGITS or not (name.isascii() and name.isdigit()):
        raise ValueError(
            f"{name!r} is not a segment's name: {FILE_NAME_DIGITS} digits are expected"
        )
    return int(name)


def body_crc(body: Buffer) -> int:
    """Checksum of a body; 0 (which a body may have by chance) reads as "not covered"."""
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
    """Encode entries, at least one, that follow one another from `pos`, a position in the data
    files. `channels` has one for each body; None is 0 for all.

    A node's rate of appends is decided here: the loop does only what needs the entry before, with
    no call but of C functions. All else is done by columns, each with one call for all entries.
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
    """The index units of entries whose headers lie one behind the other."""
    units = bytearray(count * INDEX_UNIT_SIZE)
    unit_words = memoryview(units).cast("I")
    for number, header_number in enumerate(_HEADER_WORDS_OF_UNIT):
        unit_words[number::_UNIT_WORDS] = header_words[header_number::_HEADER_WORDS]
    return units


def scan_entries(
    source: memoryview,
    at: int,
    limit: int,
    *,
    index: int,
    term: int,
    pos: int,
    chain_crc: int | None,
    count_max: int,
) -> EntryScan:
    """Take sound entries of one term that follow one another from byte `at`, at most `count_max`.

    The first must have this index and lie at this position of the data files; `chain_crc` is that
    of the entry before, or None when it is not known. Nothing is taken beyond byte `limit`.

    A follower's rate and the time of a recovery are decided here: the loop only finds that
    something is wrong, and `_damage_of` then says what.
    """
    unpack, pack_header, pack_unit = ENTRY_HEADER.unpack_from, ENTRY_HEADER.pack, INDEX_UNIT.pack
    units: list[bytes] = []
    channels: list[ChannelEntry] = []
    stop_index, start_max = index + count_max, limit - ENTRY_HEADER_SIZE
    while index < stop_index and at <= start_max:
        magic, size, own_index, own_term, own_pos, channel, own_chain, own_crc, body_size = unpack(
            source, at
        )
        end = at + size
        if (
            own_index != index
            or own_term != term
            or own_pos != pos
            or body_size < 0
            or size != ENTRY_HEADER_SIZE + body_size
            or end > limit
            or magic not in ENTRY_MAGICS
        ):
            break
        if own_crc and crc32(source[at + ENTRY_HEADER_SIZE : end]) != own_crc:
            break
        if own_chain and chain_crc is not None:
            header = pack_header(magic, size, index, term, pos, channel, 0, own_crc, body_size)
            if crc32(header, chain_crc) != own_chain:
                break
        units.append(pack_unit(magic, pos, size, index, term))
        if channel:
            channels.append(ChannelEntry(index, magic, channel))
        chain_crc = own_chain
        pos += size
        index += 1
        at = end
    damage = None
    if index < stop_index and at < limit:
        damage = _damage_of(source, at, limit, index, term, pos, chain_crc)
    return EntryScan(at, index, chain_crc, b"".join(units), channels, damage)


def _damage_of(
    source: memoryview,
    at: int,
    limit: int,
    index: int,
    term: int,
    pos: int,
    chain_crc: int | None,
) -> DamagedRecordError:
    """What is wrong with the record at byte `at`, which `scan_entries` did not take."""
    try:
        header = check_entry(source, at, limit, chain_crc)
    except DamagedRecordError as error:
        return error
    for reason, found, expected in (
        ("bad_index", header.index, index),
        ("bad_term", header.term, term),
        ("bad_pos", header.pos, pos),
    ):
        if found != expected:
            return DamagedRecordError(reason, f"{found} at byte {at}, where {expected} belongs")
    raise AssertionError(f"the entry at byte {at} is sound, and was not taken")


def chain_crc_of(header: EntryHeader, previous_chain_crc: int) -> int:
    """The chain_crc that this header should carry after an entry with the given one."""
    return crc32(ENTRY_HEADER.pack(*header._replace(chain_crc=0)), previous_chain_crc)


def unpack_header(source: Buffer, at: int) -> EntryHeader:
    """Read a header without judging it; DamagedRecordError when the bytes end too early."""
    if len(source) - at < ENTRY_HEADER_SIZE:
        raise DamagedRecordError("short_header", f"{max(0, len(source) - at)} bytes are left")
    return EntryHeader._make(ENTRY_HEADER.unpack_from(source, at))


def check_entry(
    source: Buffer, at: int, limit: int, previous_chain_crc: int | None = None
) -> EntryHeader:
    """Read the entry at byte `at` and judge everything that it says of itself.

    `limit` is the end of the bytes that may belong to it. `previous_chain_crc` is the chain_crc of
    the entry before, or None when that is not known. Position in the file, index and term are for
    the caller, who knows what came before.
    """
    if limit - at < ENTRY_HEADER_SIZE:
        raise DamagedRecordError("short_header", f"{max(0, limit - at)} bytes are left")
    header = unpack_header(source, at)
    if header.magic not in ENTRY_MAGICS:
        raise DamagedRecordError("bad_magic", f"magic {header.magic} at byte {at}")
    if header.body_size < 0 or header.size != ENTRY_HEADER_SIZE + header.body_size:
        raise DamagedRecordError(
            "bad_size", f"size {header.size} with a body of {header.body_size} at byte {at}"
        )
    end = at + header.size
    if end > limit:
        raise DamagedRecordError(
            "short_body", f"entry {header.index} ends {end - limit} bytes late"
        )
    if header.body_crc and crc32(source[at + ENTRY_HEADER_SIZE : end]) != header.body_crc:
        raise DamagedRecordError("bad_body_crc", f"body of entry {header.index} at byte {at}")
    if header.chain_crc and previous_chain_crc is not None:
        expected = crc32(source[at + 40 : at + 48], _chain_prefix(source, at, previous_chain_crc))
        if expected != header.chain_crc:
            raise DamagedRecordError(
                "bad_chain_crc", f"header of entry {header.index} at byte {at}"
            )
    return header


def _chain_prefix(source: Buffer, at: int, previous_chain_crc: int) -> int:
    """CRC of the header up to its chain_crc field, which counts as four zero bytes."""
    return crc32(b"\0\0\0\0", crc32(source[at : at + CHAIN_CRC_OFFSET], previous_chain_crc))


def unpack_index_unit(source: Buffer, at: int) -> IndexUnit:
    """Read the index unit at byte `at`."""
    return IndexUnit._make(INDEX_UNIT.unpack_from(source, at))


def needs_next_segment(entry_size: int, write_position: int, segment_size: int) -> bool:
    """Whether an entry must go to the next segment (`SegmentList.preAppend` of Java DLedger)."""
    return entry_size + BLANK_SIZE_MIN > segment_size - write_position


def place_entry(size: int, pos: int, segment_size: int) -> int:
    """Where an entry goes when the one before ends at `pos`; ValueError if no segment can hold it.

    It depends on sizes alone, so members whose segments have one size have one layout.
    """
    write_position = pos % segment_size
    if not needs_next_segment(size, write_position, segment_size):
        return pos
    if needs_next_segment(size, 0, segment_size):
        raise ValueError(f"an entry of {size} bytes does not fit a segment of {segment_size}")
    return pos + segment_size - write_position
