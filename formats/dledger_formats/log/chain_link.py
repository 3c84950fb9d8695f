"""The chain CRC before an entry, computed backwards from the entry's own header.

Each step of a CRC can be undone. So the header of a log's first entry, if it is sound, yields the
chain CRC of the entry before it, which the log no longer holds. Kept in another file, that value
proves the header from then on.
"""

from typing import Final
from zlib import crc32

from dledger_formats.log.disk import ENTRY_HEADER, EntryHeader

_ALL_ONES: Final = 0xFFFFFFFF


def _table() -> dict[int, tuple[int, int]]:
    """Return each value of the CRC-32 table and its place there, by the value's highest byte."""
    found = {}
    for place in range(256):
        value = place
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        found[value >> 24] = (value, place)
    return found


_BY_HIGHEST_BYTE: Final = _table()


def chain_crc_before(header: EntryHeader) -> int | None:
    """Return the chain CRC that the entry before must have; None if nothing covers this header."""
    if header.chain_crc == 0:
        return None
    state = header.chain_crc ^ _ALL_ONES
    covered = ENTRY_HEADER.pack(*header._replace(chain_crc=0))
    for byte in reversed(covered):
        value, place = _BY_HIGHEST_BYTE[state >> 24]
        state = (state ^ value) << 8 & _ALL_ONES | place ^ byte
    before = state ^ _ALL_ONES
    assert crc32(covered, before) == header.chain_crc
    return before
