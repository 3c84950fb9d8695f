"""The records of `dledger_formats.log.disk` as numpy types, and the bits that judge a row."""

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
    """Pair a struct's codes with its fields' names; numpy and struct share these codes."""
    order, codes = struct_format[0], struct_format[1:]
    return np.dtype([(name, order + code) for name, code in zip(names, codes, strict=True)])


HEADER: Final = _dtype(disk.EntryHeader._fields, disk.ENTRY_HEADER.format)
UNIT: Final = _dtype(disk.IndexUnit._fields, disk.INDEX_UNIT.format)

assert HEADER.itemsize == disk.ENTRY_HEADER_SIZE
assert HEADER.fields is not None
assert HEADER.fields["chain_crc"][1] == disk.CHAIN_CRC_OFFSET
assert UNIT.itemsize == disk.INDEX_UNIT_SIZE


class Flag(enum.IntFlag):
    """What is wrong with the entry that a row stands for; the column `flags` holds these bits.

    A name, in small letters, is also the check's name in an audit's findings.
    """

    BAD_MAGIC = enum.auto()
    """The magic is none of an entry."""
    BAD_SIZE = enum.auto()
    """size and body_size contradict each other, or the place of the next entry."""
    BAD_POS = enum.auto()
    """pos is shifted otherwise than in both neighbours.

    A shift of a whole run is sound: an entry keeps the position that it had on the leader.
    """
    BAD_BODY_CRC = enum.auto()
    NO_CRC = enum.auto()
    """No checksum covers it, as in all that Java wrote."""
    INDEX_FILE_DIFFERS = enum.auto()
    """The index file has no unit for it, or one that says something else."""
    LOST_ENTRY = enum.auto()
    """There is no entry where it should be."""
    BAD_INDEX = enum.auto()
    """It says another index than its place."""
    TERM_BACK = enum.auto()
    """Its term is lower than that of the entry before."""
    BAD_CHAIN_CRC = enum.auto()
    """The header does not match its checksum."""
    SHORT_FILE = enum.auto()
    """The file ends before it, although the manifest says otherwise."""
    UNREADABLE = enum.auto()
    """The member did not serve its bytes."""


ABSENT: Final = Flag.LOST_ENTRY | Flag.SHORT_FILE | Flag.UNREADABLE
"""The row stands for an entry that was not found: all its other columns are null."""

BAD_HEADER: Final = Flag.BAD_MAGIC | Flag.BAD_SIZE | Flag.BAD_INDEX | Flag.BAD_CHAIN_CRC
DAMAGED: Final = ABSENT | BAD_HEADER | Flag.BAD_BODY_CRC
"""What the row says of the entry is not what was once written."""
