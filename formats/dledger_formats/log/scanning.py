"""Read many entries at once: find the end of the sound entries, and the damage after it."""

from typing import NamedTuple

from dledger_formats.log.channels import ChannelRun, may_continue
from dledger_formats.log.checksum import crc32
from dledger_formats.log.disk import (
    ENTRY_HEADER,
    ENTRY_HEADER_SIZE,
    ENTRY_MAGICS,
    INDEX_UNIT,
    NORMAL,
    DamagedRecordError,
    check_entry,
)


class EntryScan(NamedTuple):
    """The entries that `scan_entries` accepted, and why it stopped."""

    end: int
    """The byte after the last accepted entry."""
    next_index: int
    chain_crc: int | None
    """The chain_crc of the last accepted entry."""
    units: bytes
    """The index units of the accepted entries."""
    channels: list[ChannelRun]
    """The runs of accepted entries that have a channel."""
    damage: DamagedRecordError | None
    """Why the record at `end` was rejected; None if the limit or the count was reached."""


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
    """Read consecutive sound entries of one term from byte `at`, at most `count_max`.

    The first entry must have this index and this position in the data files; `chain_crc` is that of
    the previous entry, or None if it is not known. No byte from `limit` on is read.

    This function limits a follower's append rate and the speed of a recovery. So the loop only
    detects damage, and `_damage_of` then finds the reason.
    """
    unpack, pack_header, pack_unit = ENTRY_HEADER.unpack_from, ENTRY_HEADER.pack, INDEX_UNIT.pack
    units: list[bytes] = []
    runs: list[list[int]] = []  # the fields of a ChannelRun
    next_channel = next_of_run = 0
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
            if channel == next_channel and index == next_of_run and may_continue(channel):
                runs[-1][3] += 1
            else:
                runs.append([index, magic, channel, 1])
            next_channel = channel + 1 if magic == NORMAL else 0
            next_of_run = index + 1
        chain_crc = own_chain
        pos += size
        index += 1
        at = end
    damage = None
    if index < stop_index and at < limit:
        damage = _damage_of(source, at, limit, index, term, pos, chain_crc)
    channels = [ChannelRun(*fields) for fields in runs]
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
    """Return what is wrong with the record at byte `at`, which `scan_entries` rejected."""
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
    raise AssertionError(f"the entry at byte {at} is sound, but was rejected")
