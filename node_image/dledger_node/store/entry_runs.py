"""Encoded entries, ready to be copied into a segment: what a leader's batch and a push become."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dledger_formats import disk
from dledger_formats.channels import ChannelEntry
from dledger_formats.disk import BLANK_SIZE_MIN, ENTRY_HEADER_SIZE, INDEX_UNIT_SIZE, Buffer


class Link(NamedTuple):
    """The end of a log: what the next entry must fit to."""

    end_pos: int
    chain_crc: int | None
    """None when it is not known."""


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Entries of one term that follow one another in one segment."""

    pos: int
    data: Buffer
    units: bytes
    """Their index units."""
    chain_crc: int
    """Of the last one."""
    channels: Sequence[ChannelEntry] = ()
    """Of a pushed run: those entries that have a channel."""

    @property
    def count(self) -> int:
        """How many entries it holds; at least one."""
        return len(self.units) // INDEX_UNIT_SIZE

    @property
    def end_pos(self) -> int:
        """Position behind the last entry."""
        return self.pos + len(self.data)

    def follows(self, index: int, link: Link, segment_size: int) -> bool:
        """Whether the first entry continues a log that ends with entry `index` at `link`."""
        header = disk.unpack_header(self.data, 0)
        pos = disk.place_entry(header.size, link.end_pos, segment_size)
        if header.index != index + 1 or header.pos != pos:
            return False
        if header.chain_crc == 0 or link.chain_crc is None:
            return True
        return header.chain_crc == disk.chain_crc_of(header, link.chain_crc)

    def without_first(self, count: int) -> "EntryRun":
        """The same run without so many entries; it must have more."""
        units = self.units[count * INDEX_UNIT_SIZE :]
        unit = disk.unpack_index_unit(units, 0)
        channels = [entry for entry in self.channels if entry.index >= unit.index]
        data = memoryview(self.data)[unit.pos - self.pos :]
        return EntryRun(unit.pos, data, units, self.chain_crc, channels)


def place_bodies(body_sizes: Sequence[int], pos: int, segment_size: int) -> list[tuple[int, int]]:
    """Where entries with such bodies go, from `pos` on: position and number of entries of each run.

    ValueError when no segment can hold one of them.
    """
    total = sum(body_sizes) + len(body_sizes) * ENTRY_HEADER_SIZE
    if total + BLANK_SIZE_MIN <= segment_size - pos % segment_size:
        return [(pos, len(body_sizes))]
    runs: list[tuple[int, int]] = []
    for body_size in body_sizes:
        size = ENTRY_HEADER_SIZE + body_size
        place = disk.place_entry(size, pos, segment_size)
        if runs and place == pos:
            start, count = runs[-1]
            runs[-1] = (start, count + 1)
        else:
            runs.append((place, 1))
        pos = place + size
    return runs


def pack_runs(
    bodies: Sequence[Buffer],
    channels: Sequence[int] | None = None,
    *,
    magic: int,
    first_index: int,
    term: int,
    end_pos: int,
    chain_crc: int,
    segment_size: int,
) -> list[EntryRun]:
    """Encode a batch behind the entry that ends at `end_pos` and has this chain_crc."""
    runs: list[EntryRun] = []
    taken = 0
    for pos, count in place_bodies([len(body) for body in bodies], end_pos, segment_size):
        packed = disk.pack_entries(
            bodies[taken : taken + count],
            magic=magic,
            first_index=first_index + taken,
            term=term,
            pos=pos,
            previous_chain_crc=chain_crc,
            channels=None if channels is None else channels[taken : taken + count],
        )
        runs.append(EntryRun(pos, packed.data, packed.units, packed.chain_crc))
        taken += count
        chain_crc = packed.chain_crc
    return runs
