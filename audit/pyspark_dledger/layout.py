"""The records of `dledger_formats.log.disk` as numpy types, and the flags of a row."""

import enum
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from dledger_formats.log import disk

Bytes: TypeAlias = npt.NDArray[np.uint8]
Longs: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Records: TypeAlias = npt.NDArray[np.void]


def _dtype(names: tuple[str, ...], struct_format: str) -> np.dtype[np.void]:
    """Build a dtype from a struct format, whose codes numpy shares, and the fields' names."""
    order, codes = struct_format[0], struct_format[1:]
    return np.dtype([(name, order + code) for name, code in zip(names, codes, strict=True)])


HEADER: Final = _dtype(disk.EntryHeader._fields, disk.ENTRY_HEADER.format)
UNIT: Final = _dtype(disk.IndexUnit._fields, disk.INDEX_UNIT.format)

assert HEADER.itemsize == disk.ENTRY_HEADER_SIZE
assert HEADER.fields is not None
assert HEADER.fields["chain_crc"][1] == disk.CHAIN_CRC_OFFSET
assert UNIT.itemsize == disk.INDEX_UNIT_SIZE


class Flag(enum.IntFlag):
    """Faults of the entry that a row represents; the column `flags` holds these bits.

    In an audit's findings, the flag's name in lower case is the name of the check.
    """

    BAD_MAGIC = enum.auto()
    """The magic number is not that of an entry."""
    BAD_SIZE = enum.auto()
    """size and body_size contradict each other or the place of the next entry."""
    BAD_POS = enum.auto()
    """pos has a different shift than in both neighbors.

    A shift of a whole run of entries is sound: an entry keeps its position on the leader.
    """
    BAD_BODY_CRC = enum.auto()
    NO_CRC = enum.auto()
    """No checksum covers the entry; Java writes none."""
    INDEX_FILE_DIFFERS = enum.auto()
    """The index file has no unit for the entry, or one that does not match."""
    LOST_ENTRY = enum.auto()
    """No entry was found where one should be."""
    BAD_INDEX = enum.auto()
    """The index in the header does not match the entry's place."""
    TERM_BACK = enum.auto()
    """The term is lower than the previous entry's."""
    BAD_CHAIN_CRC = enum.auto()
    """The header does not match its checksum."""
    SHORT_FILE = enum.auto()
    """The file ends before the entry, contrary to the manifest."""
    UNREADABLE = enum.auto()
    """The member did not serve the entry's bytes."""
    UNCOVERED = enum.auto()
    """No checksum covers the entry, although one leader wrote all entries of a term, and other
    entries of this term are covered.
    """
    UNKNOWN_ENTRY = enum.auto()
    """The checksums are right, and the magic number is not known: a later version wrote it."""
    TERM_ABOVE = enum.auto()
    """The term is above the member's own."""
    BAD_NOOP = enum.auto()
    """A NOOP has a body, and its channel does not say that it is a membership."""
    BAD_MEMBERSHIP = enum.auto()
    """The body of a membership entry is not a valid membership."""
    DISK_ERROR = enum.auto()
    """The member cannot read the entry's bytes from its disk."""
    BAD_BLANK = enum.auto()
    """The segment does not end with a blank record after this entry, as every sealed one does."""


ABSENT: Final = Flag.LOST_ENTRY | Flag.SHORT_FILE | Flag.UNREADABLE
"""Flags of rows for entries that were not found; their other columns are null."""

BAD_HEADER: Final = Flag.BAD_MAGIC | Flag.BAD_SIZE | Flag.BAD_INDEX | Flag.BAD_CHAIN_CRC
UNCOVERED: Final = Flag.NO_CRC | Flag.UNCOVERED
DAMAGED: Final = ABSENT | BAD_HEADER | Flag.BAD_BODY_CRC | Flag.DISK_ERROR
"""Flags of rows that differ from what was written."""
