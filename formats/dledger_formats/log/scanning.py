"""Reading many entries at once: where the sound ones end, and what is wrong with the next."""

from typing import NamedTuple

from dledger_formats.log.channels import ChannelEntry
from dledger_formats.log.checksum import crc32
from dledger_formats.log.disk import (
    ENTRY_HEADER,
    ENTRY_HEADER_SIZE,
    ENTRY_MAGICS,
    INDEX_UNIT,
    DamagedRecordError,
    check_entry,
)


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
