"""One entry as it travels in the responses to GET and FOLLOW."""

from typing import Self

import msgspec

from dledger_formats.log import disk
from dledger_formats.protocol.decoding import Int32, Int64, LooseBytes, to_bytes


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

    @classmethod
    def from_disk(cls, header: disk.EntryHeader, body: bytes) -> Self:
        """Return the entry that is stored with this header."""
        return cls(
            body=body,
            body_crc=_signed(header.body_crc),
            chain_crc=_signed(header.chain_crc),
            channel=header.channel,
            index=header.index,
            magic=header.magic,
            pos=header.pos,
            size=header.size,
            term=header.term,
        )

    @property
    def is_intact(self) -> bool:
        """Whether the body matches its checksum; True if it has none."""
        return self.body_crc in (0, _signed(disk.body_crc(self.body)))


class LooseEntry(DLedgerEntry, kw_only=True, frozen=True):
    """An entry whose body is not decoded yet."""

    body: LooseBytes  # type: ignore[assignment]

    def strict(self) -> DLedgerEntry:
        """Return this entry with its body decoded. Raises FormatError."""
        return DLedgerEntry(**msgspec.structs.asdict(self) | {"body": to_bytes(self.body)})


def _signed(crc: int) -> int:
    """Return the same 32 bits as a signed number."""
    return crc - (1 << 32) if crc >> 31 else crc
