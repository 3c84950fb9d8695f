"""Entries with a checksum that is computed as 0, which the format stores as "not covered"."""

import struct
from collections.abc import Callable

from dledger_formats.log import disk


def body_with_crc_0() -> bytes:
    """Return a body of four bytes whose checksum is 0."""
    return struct.pack(">i", _solved(lambda value: disk.body_crc(struct.pack(">i", value))))


def channel_with_chain_crc_0(body: bytes, *, index: int, term: int, pos: int, seed: int) -> int:
    """Return the channel of a normal entry whose chain CRC is 0 after the chain CRC `seed`."""

    def chain_crc(channel: int) -> int:
        return disk.pack_entries(
            [body], magic=disk.NORMAL, first_index=index, term=term, pos=pos,
            previous_chain_crc=seed, channels=[channel],
        ).chain_crc  # fmt: skip

    return _solved(chain_crc)


def _solved(crc: Callable[[int], int]) -> int:
    """Solve the linear system: a CRC-32 is affine in the 32 bits of the argument."""

    def of(bits: int) -> int:
        return crc(struct.unpack(">i", struct.pack(">I", bits))[0])

    base = of(0)
    columns = [of(1 << bit) ^ base for bit in range(32)]
    target, solution = base, 0
    rows = [(column, 1 << bit) for bit, column in enumerate(columns)]
    for bit in range(32):
        pivot = next(row for row in rows if row[0] >> bit & 1)
        rows = [
            (value ^ pivot[0], used ^ pivot[1])
            if value >> bit & 1 and (value, used) != pivot
            else (value, used)
            for value, used in rows
            if (value, used) != pivot
        ]
        if target >> bit & 1:
            target, solution = target ^ pivot[0], solution ^ pivot[1]
    return int(struct.unpack(">i", struct.pack(">I", solution))[0])
