"""One entry as it travels in the responses to GET and FOLLOW."""

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from dledger_formats.log import disk
from dledger_formats.protocol.decoding import Int32, Int64, LooseBytes, to_bytes

_SIGNED_HEADER: Final = struct.Struct(">iiqqqiiii")
"""The header of a stored entry, with both checksums signed as in DLedgerEntry."""

assert _SIGNED_HEADER.size == disk.ENTRY_HEADER_SIZE


class DLedgerEntry(msgspec.Struct, kw_only=True, frozen=True, rename="camel", gc=False):
    """One entry. Java sends both checksums as 0, and ignores them when it compares entries."""

    body: bytes
    body_crc: Int32
    """The body_crc of `disk`, but signed, because Java reads it into an int; 0: not covered."""
    chain_crc: Int32
    channel: Int32
    index: Int64
    magic: Int32
    """disk.NORMAL or disk.NOOP"""
    pos: Int64
    size: Int32
    """48 + the length of the body"""
    term: Int64

    @property
    def is_intact(self) -> bool:
        """Whether the body matches its checksum; True if it has none."""
        return self.body_crc in (0, _signed(disk.body_crc(self.body)))


def entries_from_disk(run: disk.Buffer) -> Iterator[DLedgerEntry]:
    """Yield the entries of a run of whole stored entries, whose sizes the caller has checked."""
    unpack, header_size, at = _SIGNED_HEADER.unpack_from, disk.ENTRY_HEADER_SIZE, 0
    while at < len(run):
        magic, size, index, term, pos, channel, chain_crc, body_crc, _ = unpack(run, at)
        yield DLedgerEntry(
            body=bytes(run[at + header_size : at + size]),
            body_crc=body_crc,
            chain_crc=chain_crc,
            channel=channel,
            index=index,
            magic=magic,
            pos=pos,
            size=size,
            term=term,
        )
        at += size


class LooseEntry(DLedgerEntry, kw_only=True, frozen=True):
    """An entry whose body is not decoded yet."""

    body: LooseBytes  # type: ignore[assignment]

    def strict(self) -> DLedgerEntry:
        """Return this entry with its body decoded. Raises FormatError."""
        return DLedgerEntry(**msgspec.structs.asdict(self) | {"body": to_bytes(self.body)})


def _signed(crc: int) -> int:
    """Return the 32 bits of a checksum as a signed number."""
    return crc - (1 << 32) if crc >> 31 else crc
